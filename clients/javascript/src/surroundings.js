// Cells of a coarse grid around the places of a map, for vehicles that leave its roads. As in Python's
// `tracking.surroundings`, which says why.

import { MotionModel } from "./motion_model.js";

const MARGIN_M = 6000;
const CELL_EPSILON_M = 2000;
const LEAST_CELL_M = 600;
const LEAST_CELLS = 500;
const SPEED_M_S = 10;
const LEAVING = 0.4;
const STARTING = 0.1;

/**
 * Return a model with cells around its places.
 *
 * @param {MotionModel} model
 * @param {number} epsilon of a report, per kilometre
 * @returns {MotionModel}
 */
export function surrounded(model, epsilon) {
  const grid = new Grid(model, epsilon);
  const { placeCount: places, stateCount: states } = model;
  const cells = grid.cells.length;
  const rows = allMoves(model, grid);
  const placesE7 = new Int32Array(2 * (places + cells));
  placesE7.set(model.placesE7);
  grid.cells.forEach(([column, row], cell) => {
    const [lat, lon] = model.toDegrees(grid.lowX + (column + 0.5) * grid.sideM, grid.lowY + (row + 0.5) * grid.sideM);
    placesE7.set([Math.round(lat * 1e7), Math.round(lon * 1e7)], 2 * (places + cell));
  });
  const present = Int32Array.from({ length: states + cells }, (_, state) =>
    state < states ? model.present[state] : places + state - states,
  );
  const start = Float32Array.from(present, (_, state) =>
    state < states ? model.start[state] * (1 - STARTING) : STARTING / cells,
  );
  const offsets = new Int32Array(rows.length + 1);
  rows.forEach((row, state) => { offsets[state + 1] = offsets[state] + row.length; });
  return new MotionModel({
    ...model, placesE7, present, start, offsets, cells, cellM: grid.sideM,
    targets: Int32Array.from(rows.flat(), ([target]) => target),
    chances: Float32Array.from(rows.flat(), ([, chance]) => chance),
  });
}

/** Squares over the places and a margin; a square without a place is a cell. */
class Grid {
  /** @param {MotionModel} model @param {number} epsilon */
  constructor(model, epsilon) {
    const [[lowX, highX], [lowY, highY]] = [model.x, model.y].map((axis) => [
      axis.reduce((least, value) => Math.min(least, value), Infinity) - MARGIN_M,
      axis.reduce((most, value) => Math.max(most, value), -Infinity) + MARGIN_M,
    ]);
    const most = Math.max(model.placeCount, LEAST_CELLS);
    const area = (highX - lowX) * (highY - lowY);
    this.sideM = Math.max(CELL_EPSILON_M / epsilon, LEAST_CELL_M, Math.sqrt(area / most));
    this.columns = Math.ceil((highX - lowX) / this.sideM);
    this.rows = Math.ceil((highY - lowY) / this.sideM);
    this.lowX = (lowX + highX - this.columns * this.sideM) / 2;
    this.lowY = (lowY + highY - this.rows * this.sideM) / 2;
    /** Column and row of each place. */
    this.squares = Array.from(model.x, (x, place) => [
      Math.floor((x - this.lowX) / this.sideM), Math.floor((model.y[place] - this.lowY) / this.sideM),
    ]);
    /** @type {Map<number, number>} */
    this.placesIn = new Map();
    for (const [column, row] of this.squares) {
      const key = column * this.rows + row;
      this.placesIn.set(key, (this.placesIn.get(key) ?? 0) + 1);
    }
    /** Column and row of each cell. @type {[number, number][]} */
    this.cells = [];
    this.numbers = new Map();
    for (let key = 0; key < this.columns * this.rows; key += 1) {
      if (this.placesIn.has(key)) continue;
      this.numbers.set(key, this.cells.length);
      this.cells.push([Math.floor(key / this.rows), key % this.rows]);
    }
  }

  /** @param {number} column @param {number} row @returns {number | undefined} the number of a cell, if there is one */
  cellAt(column, row) {
    const isInside = column >= 0 && column < this.columns && row >= 0 && row < this.rows;
    return isInside ? this.numbers.get(column * this.rows + row) : undefined;
  }
}

/** @param {MotionModel} model @param {Grid} grid @returns {[number, number][][]} targets and chances of each state */
function allMoves(model, grid) {
  const { stateCount: states, present } = model;
  const crossing = Math.min(2 / 3, (SPEED_M_S * model.intervalS) / grid.sideM);
  const along = [crossing / 2, 1 - crossing, crossing / 2];
  const steps = [-1, 0, 1].flatMap((east) => [-1, 0, 1].map((north) => [east, north, along[east + 1] * along[north + 1]]));
  /** @type {[number, number][][]} */
  const rows = Array.from({ length: states + grid.cells.length }, () => []);
  grid.cells.forEach(([column, row], cell) => {
    for (const [east, north, chance] of steps) {
      const next = grid.cellAt(column + east, row + north);
      if (next !== undefined) rows[states + cell].push([states + next, chance]);
    }
  });
  // A vehicle enters the map in the likeliest state of a place.
  const entered = new Int32Array(model.placeCount).fill(-1);
  present.forEach((place, state) => {
    if (entered[place] < 0 || model.start[state] >= model.start[entered[place]]) entered[place] = state;
  });
  const exits = grid.squares.map(([column, row], place) => {
    const share = 1 / (grid.placesIn.get(column * grid.rows + row) ?? 1);
    /** @type {[number, number][]} */
    const out = [];
    for (const [east, north, chance] of steps) {
      const cell = grid.cellAt(column + east, row + north);
      if (cell === undefined) continue;
      out.push([states + cell, LEAVING * chance]);
      if (entered[place] >= 0) rows[states + cell].push([entered[place], chance * share]);
    }
    return out;
  });
  for (let state = 0; state < states; state += 1) {
    const out = exits[present[state]];
    const staying = 1 - out.reduce((sum, [, chance]) => sum + chance, 0);
    for (let move = model.offsets[state]; move < model.offsets[state + 1]; move += 1) {
      rows[state].push([model.targets[move], model.chances[move] * staying]);
    }
    rows[state].push(...out);
  }
  // At the rim of the grid some moves are missing.
  return rows.map((row) => {
    const total = row.reduce((sum, [, chance]) => sum + chance, 0);
    return row.map(([target, chance]) => [target, chance / total]);
  });
}

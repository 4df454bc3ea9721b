/** Points as longitude and latitude in degrees, and distances in metres. */

const DEGREE_M = (Math.PI / 180) * 6371008.8;
const EAST_NORTH = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/** The point some metres east and north of another. */
export function beside([lon, lat], east, north) {
  return [lon + east / (DEGREE_M * Math.cos((lat * Math.PI) / 180)), lat + north / DEGREE_M];
}

/** The next point in an arrow key's direction. */
export const nextPoint = (point, key, metres) => beside(point, ...EAST_NORTH[key].map((step) => step * metres));

/** How far two points are apart. */
export function metresApart([lon, lat], [otherLon, otherLat]) {
  return DEGREE_M * Math.hypot((otherLon - lon) * Math.cos((lat * Math.PI) / 180), otherLat - lat);
}

/** A circle as a closed line. */
export function circle(point, metres) {
  const angles = Array.from({ length: 73 }, (_, index) => (index * Math.PI) / 36);
  return angles.map((angle) => beside(point, metres * Math.cos(angle), metres * Math.sin(angle)));
}

/** The box that reaches some metres from a point to all sides. */
export const boxAt = (point, metres) => [beside(point, -metres, -metres), beside(point, metres, metres)];

/** The box around points: [[west, south], [east, north]]. */
export function boxAround(points) {
  const [lon, lat] = [0, 1].map((axis) => points.map((point) => point[axis]));
  return [
    [Math.min(...lon), Math.min(...lat)],
    [Math.max(...lon), Math.max(...lat)],
  ];
}

/** The point between two, at a share of the way from the first. */
export const between = (one, other, share) => one.map((value, axis) => value + share * (other[axis] - value));

/** The beginning of a line, up to a share of its length; its last point is where that is. */
export function upTo(line, share) {
  const legs = line.slice(1).map((point, index) => metresApart(line[index], point));
  let left = share * legs.reduce((sum, leg) => sum + leg, 0);
  for (const [index, leg] of legs.entries()) {
    if (leg >= left && leg > 0) return [...line.slice(0, index + 1), between(line[index], line[index + 1], left / leg)];
    left -= leg;
  }
  return line;
}

/** Lines one after another, as one; each begins where the one before ends. */
export const joined = (lines) =>
  lines.flat().filter((point, index, all) => !index || point[0] !== all[index - 1][0] || point[1] !== all[index - 1][1]);

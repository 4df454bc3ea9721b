/** A map of the city, drawn by MapLibre from what this service has: roads, cells of places or a lattice, borders. */

/* global maplibregl */
import { borders, latestOnly, mapUrl } from "./service.js";
import { colours, HECTARE_STEPS, STEPS } from "./theme.js";
import { element } from "./words.js";

const NOTHING = { type: "FeatureCollection", features: [] };

/** Roads from small to large: those of a rank are drawn from some zoom on, and grow wider, in pixels, from 10 to 16. */
const ROADS = [
  { rank: 3, from: 12, width: [0.3, 2] },
  { rank: 2, from: 10.5, width: [0.6, 3] },
  { rank: 1, from: 0, width: [0.9, 4] },
  { rank: 0, from: 0, width: [1.2, 5] },
];

const line = (coordinates, properties = {}) => ({
  type: "Feature",
  properties,
  geometry: { type: "LineString", coordinates },
});
const point = (coordinates, properties = {}) => ({
  type: "Feature",
  properties,
  geometry: { type: "Point", coordinates },
});

/** MapLibre reads a credit as markup; the credit of roads is text. */
const asText = (text) => element("span", {}, text).innerHTML;

/** Cells of a lattice that are so much less probable than the most probable one are left out. */
const LEAST_SHARE = 0.002;

function heatColour(palette, above) {
  const steps = above.flatMap((step, index) => [step, palette[index + 1]]);
  return ["step", ["get", "probability"], palette[0], ...steps];
}

/** A value for each kind of way: the latest of the true one, what is older, the guessed one, and the reported one. */
const byKind = (latest, older, guess, reported) =>
  ["match", ["get", "kind"], "true", latest, "older", older, "guess", guess, reported]; // prettier-ignore

/** The frame of a lattice as a line; its eastern edge may lie beyond 180°. */
function frameLine({ south, west, north, east }) {
  const right = east < west ? east + 360 : east;
  return line([[west, south], [right, south], [right, north], [west, north], [west, south]]); // prettier-ignore
}

function roadLayer({ rank, from, width }) {
  return {
    id: `roads-${rank}`,
    type: "line",
    source: "roads",
    minzoom: from,
    filter: ["==", ["get", "rank"], rank],
    paint: {
      "line-color": rank < 2 ? colours().mainRoad : colours().road,
      "line-width": ["interpolate", ["exponential", 1.5], ["zoom"], 10, width[0], 16, width[1]],
    },
  };
}

/** Without roads, the cells of places are drawn instead. */
function placesLayer() {
  return { id: "places", type: "line", source: "cells", paint: { "line-color": colours().road, "line-width": 0.5 } };
}

/** The style of the map in the colours of the theme; without roads and places, there is nothing below the heat. */
function style({ roads, places }, palette, above) {
  const colour = colours();
  const geojson = (data) => ({ type: "geojson", data });
  return {
    version: 8,
    sources: {
      ...(roads ? { roads: { ...geojson(mapUrl("roads")), maxzoom: 14 } } : {}),
      ...(roads || !places.length ? {} : { cells: geojson(mapUrl("cells")) }),
      heat: geojson(NOTHING),
      borders: geojson(NOTHING),
      steps: geojson(NOTHING),
      // Without a tolerance of 0, circles have corners.
      rings: { ...geojson(NOTHING), tolerance: 0 },
      within: { ...geojson(NOTHING), tolerance: 0 },
    },
    layers: [
      { id: "paper", type: "background", paint: { "background-color": colour.paper } },
      {
        id: "heat",
        type: "fill",
        source: "heat",
        paint: { "fill-color": heatColour(colour[palette], above), "fill-opacity": 0.92, "fill-antialias": false },
      },
      ...(roads ? ROADS.map(roadLayer) : places.length ? [placesLayer()] : []),
      {
        id: "borders",
        type: "line",
        source: "borders",
        paint: { "line-color": colour.border, "line-width": 1.4, "line-dasharray": [3, 2], "line-opacity": 0.75 },
      },
      {
        id: "within",
        type: "fill",
        source: "within",
        paint: { "fill-color": colour.other, "fill-opacity": 0.13 },
      },
      {
        id: "within-edge",
        type: "line",
        source: "within",
        paint: { "line-color": colour.other, "line-width": 1.5, "line-opacity": 0.8 },
      },
      {
        id: "ways",
        type: "line",
        source: "steps",
        filter: ["==", ["geometry-type"], "LineString"],
        layout: { "line-cap": "round", "line-join": "round" },
        paint: {
          "line-color": byKind(colour.ink, colour.ink, colour.other, colour.accent),
          "line-width": byKind(4, 3, 2.5, 1),
          "line-opacity": byKind(0.85, 0.25, 0.9, 0.45),
        },
      },
      {
        id: "points",
        type: "circle",
        source: "steps",
        filter: ["==", ["geometry-type"], "Point"],
        paint: {
          "circle-color": colour.accent,
          "circle-radius": 5,
          "circle-stroke-color": colour.paper,
          "circle-stroke-width": 1.5,
          "circle-opacity": ["get", "age"],
        },
      },
      {
        id: "rings",
        type: "line",
        source: "rings",
        paint: { "line-color": colour.accent, "line-width": 2.5 },
      },
    ],
  };
}

export class CityMap {
  /**
   * @param {"map-a"|"map-b"} container The id of the element to draw in.
   * @param {{places: [number, number][], roads: boolean, credit: string}} city
   * @param {[[number, number], [number, number]]} box What is in sight at first.
   * @param {Promise<Map<number, object>>} cells The cell of each place, a feature of GeoJSON.
   */
  constructor(container, city, box, cells) {
    this.city = city;
    this.cells = cells;
    this.palette = "report";
    this.above = STEPS;
    this.loadBorders = latestOnly((sha256, frame) => (sha256 === null ? frame : borders(sha256)));
    this.map = new maplibregl.Map({
      container,
      style: style(city, this.palette, this.above),
      bounds: box,
      fitBoundsOptions: { padding: 70 },
      // Whose streets these are is always to be read, on a phone too.
      attributionControl: city.credit !== "" && { compact: false, customAttribution: asText(city.credit) },
      dragRotate: false,
      pitchWithRotate: false,
      maxPitch: 0,
      fadeDuration: 0,
      locale: { "Map.Title": `Map ${container.at(-1).toUpperCase()} of the city. Arrow keys move it, plus and minus zoom.` },
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.keyboard.disableRotation();
    this.map.addControl(new maplibregl.NavigationControl({ showCompass: false }), "top-right");
    this.map.addControl(new maplibregl.ScaleControl({ unit: "metric" }), "bottom-left");
    /** Settled when the map can be drawn on. */
    this.ready = this.map.once("style.load");
    /** Settled when all that was there in the beginning is drawn. */
    this.loaded = this.map.once("load");
  }

  /** Draw in the colours of the theme, and of what is shown: "report" or "conclusion". */
  async paint(palette = this.palette) {
    this.palette = palette;
    await this.ready;
    for (const { id, paint } of style(this.city, this.palette, this.above).layers) {
      for (const [name, value] of Object.entries(paint)) this.map.setPaintProperty(id, name, value);
    }
  }

  /**
   * Show the borders of a bundle's zones, or the frame of its lattice. Borders are asked for here and not by the map,
   * which logs an error when a newer choice overtakes an older one.
   */
  async showBorders({ kind, sha256, lattice }) {
    await this.ready;
    const show = (borders) => this.map.getSource("borders").setData(borders);
    await this.loadBorders(show, kind === "lattice" ? null : sha256, lattice && frameLine(lattice.frame));
  }

  /** Colour the cells of places by their probability. @param {number[]} places @param {number[]} probability */
  async showHeat(places, probability) {
    const [cells] = await Promise.all([this.cells, this.ready]);
    const coloured = places.flatMap((place, index) =>
      cells.has(place) ? [{ ...cells.get(place), properties: { probability: probability[index] } }] : [],
    );
    this.colourHeat(coloured, STEPS);
  }

  /** Colour blocks of a lattice's cells by the probability of a hectare. @param {object} heat As the service sends it. */
  async showBlocks(heat) {
    await this.ready;
    const { south, west, north_step: north, east_step: east, columns, per_hectare: values } = heat;
    const least = LEAST_SHARE * Math.max(...values);
    const coloured = values.flatMap((value, index) => {
      if (value < least) return [];
      const [left, low] = [west + (index % columns) * east, south + Math.floor(index / columns) * north];
      const [right, high] = [left + east, low + north];
      const ring = [[left, low], [right, low], [right, high], [left, high], [left, low]]; // prettier-ignore
      const geometry = { type: "Polygon", coordinates: [ring] };
      return [{ type: "Feature", properties: { probability: value }, geometry }];
    });
    this.colourHeat(coloured, HECTARE_STEPS);
  }

  colourHeat(features, above) {
    this.map.getSource("heat").setData({ type: "FeatureCollection", features });
    if (this.above === above) return;
    this.above = above;
    this.map.setPaintProperty("heat", "fill-color", heatColour(colours()[this.palette], above));
  }

  /** Draw ways over points, each with its kind, and the points that were reported, with their age. */
  async showWays(ways, reported) {
    await this.ready;
    this.map.getSource("steps").setData({
      type: "FeatureCollection",
      features: [
        ...ways.filter((way) => way.points.length > 1).map((way) => line(way.points, { kind: way.kind })),
        ...reported.map(({ at, age }) => point(at, { age })),
      ],
    });
  }

  /** Draw the circle that holds a tracked vehicle; null: none. @param {[number, number][]|null} ring */
  async showWithin(ring) {
    await this.ready;
    const features = ring ? [{ type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [ring] } }] : [];
    this.map.getSource("within").setData({ type: "FeatureCollection", features });
  }

  /** Draw closed lines. @param {[number, number][][]} rings */
  async showRings(rings) {
    await this.ready;
    this.map.getSource("rings").setData({ type: "FeatureCollection", features: rings.map((ring) => line(ring)) });
  }

  /** Move so that a box can be seen. */
  fit(box) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.map.fitBounds(box, { padding: 50, maxZoom: 15, duration: still ? 0 : 600 });
  }
}

/** Keep two maps at the same part of the city. @param {CityMap} first @param {CityMap} second */
export function moveTogether(first, second) {
  let moving = false;
  const follow = (leader, follower) =>
    leader.map.on("move", () => {
      if (moving) return;
      moving = true;
      follower.map.jumpTo({ center: leader.map.getCenter(), zoom: leader.map.getZoom() });
      moving = false;
    });
  follow(first, second);
  follow(second, first);
}

/** A map of the city, drawn by MapLibre from this service's data: roads, places, and the frame of a lattice. */

/* global maplibregl */
import { mapUrl } from "./service.js";
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

/** Cells of a lattice are left out if they are less probable than this share of the most probable cell. */
const LEAST_SHARE = 0.002;

function heatColour(above) {
  const palette = colours().report;
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

/** The style of the map in the colours of the theme. */
function style({ roads, places }) {
  const colour = colours();
  const geojson = (data) => ({ type: "geojson", data });
  return {
    version: 8,
    sources: {
      ...(roads ? { roads: { ...geojson(mapUrl("roads")), maxzoom: 14 } } : {}),
      places: geojson({ type: "FeatureCollection", features: places.map((at) => point(at)) }),
      heat: geojson(NOTHING),
      zone: geojson(NOTHING),
      frame: geojson(NOTHING),
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
        paint: { "fill-color": heatColour(HECTARE_STEPS), "fill-opacity": 0.92, "fill-antialias": false },
      },
      ...(roads ? ROADS.map(roadLayer) : []),
      { id: "places", type: "circle", source: "places", paint: { "circle-color": colour.mainRoad, "circle-radius": 2.5 } },
      {
        id: "zone",
        type: "circle",
        source: "zone",
        paint: {
          "circle-color": heatColour(STEPS),
          "circle-opacity": 0.92,
          "circle-radius": ["interpolate", ["exponential", 2], ["zoom"], 10, 3, 13.5, 22],
          "circle-stroke-color": colour.border,
          "circle-stroke-width": 0.7,
        },
      },
      {
        id: "frame",
        type: "line",
        source: "frame",
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
   * @param {string} container The id of the element to draw in.
   * @param {{places: [number, number][], roads: boolean, credit: string}} city
   * @param {[[number, number], [number, number]]} box What is in sight at first.
   */
  constructor(container, city, box) {
    this.city = city;
    this.map = new maplibregl.Map({
      container,
      style: style(city),
      bounds: box,
      fitBoundsOptions: { padding: 70 },
      // The credit of the map data is always visible, on a phone too.
      attributionControl: city.credit !== "" && { compact: false, customAttribution: asText(city.credit) },
      dragRotate: false,
      pitchWithRotate: false,
      maxPitch: 0,
      fadeDuration: 0,
      locale: { "Map.Title": "Map of the city. Arrow keys move it, plus and minus zoom." },
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

  /** Draw in the colours of the theme. */
  async paint() {
    await this.ready;
    for (const { id, paint } of style(this.city).layers) {
      for (const [name, value] of Object.entries(paint)) this.map.setPaintProperty(id, name, value);
    }
  }

  /** Show the frame of a lattice; undefined: none. */
  async showFrame(lattice) {
    await this.set("frame", lattice ? [frameLine(lattice.frame)] : []);
  }

  /** Colour places by their probability. @param {number[]} places @param {number[]} probability */
  async showPlaces(places, probability) {
    await this.set("heat", []);
    await this.set("zone", places.map((place, index) => point(this.city.places[place], { probability: probability[index] })));
  }

  /** Take all colours off the map. */
  async clearHeat() {
    await this.set("heat", []);
    await this.set("zone", []);
  }

  /** Colour blocks of a lattice's cells by the probability of a hectare. @param {object} heat As the service sends it. */
  async showBlocks(heat) {
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
    await this.set("zone", []);
    await this.set("heat", coloured);
  }

  async set(source, features) {
    await this.ready;
    this.map.getSource(source).setData({ type: "FeatureCollection", features });
  }

  /** Draw ways over points, each with its kind, and the points that were reported, with their age. */
  async showWays(ways, reported) {
    await this.set("steps", [
      ...ways.filter((way) => way.points.length > 1).map((way) => line(way.points, { kind: way.kind })),
      ...reported.map(({ at, age }) => point(at, { age })),
    ]);
  }

  /** Draw the circle that holds a tracked vehicle; null: none. @param {[number, number][]|null} ring */
  async showWithin(ring) {
    const polygon = { type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [ring] } };
    await this.set("within", ring ? [polygon] : []);
  }

  /** Draw closed lines. @param {[number, number][][]} rings */
  async showRings(rings) {
    await this.set("rings", rings.map((ring) => line(ring)));
  }

  /** Move so that a box can be seen. */
  fit(box) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.map.fitBounds(box, { padding: 50, maxZoom: 15, duration: still ? 0 : 600 });
  }
}

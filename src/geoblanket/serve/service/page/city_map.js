/** A map of the city, drawn by MapLibre from this service's data: roads, names, water and parks, and what happens there. */

/* global maplibregl */
import { circle, nextPoint } from "./geometry.js";
import { answerLetters, GLYPHS } from "./glyphs.js";
import { mapUrl } from "./service.js";
import { colours } from "./theme.js";
import { element } from "./words.js";

const NOTHING = { type: "FeatureCollection", features: [] };
const LIVE = ["heat", "fence", "within", "ways", "moving", "reports"];
/** Classes below the one are main streets, those from the other on small ones: their names come with the zoom. */
const [MAIN, SMALL] = [3, 5];

/** Roads from small to large: those of a rank are drawn from some zoom on, and grow wider, in pixels, from 10 to 16. */
const ROADS = [
  { rank: 3, from: 11.5, width: [0.4, 7] },
  { rank: 2, from: 10, width: [0.7, 9] },
  { rank: 1, from: 0, width: [1.1, 11] },
  { rank: 0, from: 0, width: [1.6, 12] },
];

/** Radii of the heat's discs, in units of 1/ε km: one report of twenty falls outside all of them. */
const HEAT = [0.5, 1, 1.7, 2.6, 3.6, 4.75];

/** How long after the latest frame what was given must be drawn, so that markers do not run ahead of lines. */
const LAG_MS = 60;

maplibregl.addProtocol("letters", answerLetters);

const feature = (type, coordinates, properties = {}) => ({ type: "Feature", properties, geometry: { type, coordinates } });
const widening = ([narrow, wide], more = 0) =>
  ["interpolate", ["exponential", 1.6], ["zoom"], 10, narrow + more * 0.5, 16, wide + more * 2]; // prettier-ignore
const kindIs = (...kinds) => ["in", ["get", "kind"], ["literal", kinds]];
const byKind = (truth, older, guess) => ["match", ["get", "kind"], "true", truth, "older", older, guess];

function roadLayers() {
  const colour = colours();
  const layer = (id, { rank, from, width }, paint) => ({
    id: `${id}-${rank}`, type: "line", source: "roads", minzoom: from, filter: ["==", ["get", "rank"], rank],
    layout: { "line-cap": "round", "line-join": "round" }, paint: { "line-width": widening(width, id === "casing" ? 1 : 0), ...paint },
  }); // prettier-ignore
  return [
    ...ROADS.map((road) => layer("casing", road, { "line-color": colour.casing })),
    ...ROADS.map((road) => layer("road", road, { "line-color": road.rank < 2 ? colour.mainRoad : colour.road })),
  ];
}

function sceneryLayers() {
  const { water, park } = colours();
  const area = (kind, colour) => ({
    id: kind, type: "fill", source: "scenery", filter: ["all", kindIs(kind), ["==", ["geometry-type"], "Polygon"]],
    paint: { "fill-color": colour },
  }); // prettier-ignore
  // A pixel of zoom z is 40,075 km · cos(lat) / (512 · 2^z) wide; cities are near 45°.
  const pixels = (zoom) => ["*", ["get", "width_m"], (512 * 2 ** zoom) / (40_075_017 * 0.75)];
  const width = ["interpolate", ["exponential", 2], ["zoom"], 8, pixels(8), 18, pixels(18)];
  const river = { id: "river", type: "line", source: "scenery", filter: kindIs("river"), layout: { "line-cap": "round", "line-join": "round" }, paint: { "line-color": water, "line-width": width } };
  return [area("park", park), area("water", water), river];
}

function labelLayers() {
  const { label, place, halo } = colours();
  const paint = (colour) => ({ "text-color": colour, "text-halo-color": halo, "text-halo-width": 1.4 });
  const along = (id, filter, size, from) => ({
    id, type: "symbol", source: "scenery", minzoom: from, filter,
    layout: {
      "text-field": ["get", "name"], "text-font": ["Regular"], "text-size": size, "symbol-placement": "line",
      "symbol-spacing": 400, "text-max-angle": 30, "text-padding": 4,
    },
    paint: paint(label),
  }); // prettier-ignore
  const rank = ["get", "rank"];
  return [
    along("small-streets", ["all", kindIs("street"), [">=", rank, SMALL]], 11, 14.2),
    along("streets", ["all", kindIs("street"), [">=", rank, MAIN], ["<", rank, SMALL]], 12, 12.6),
    along("main-streets", ["all", kindIs("street"), ["<", rank, MAIN]], 12, 11),
    along("river-name", kindIs("river"), 13, 11),
    {
      id: "places", type: "symbol", source: "scenery", filter: kindIs("place", "park", "water"),
      layout: {
        "text-field": ["get", "name"], "text-font": ["Bold"], "text-max-width": 8, "text-padding": 6,
        "text-size": ["interpolate", ["linear"], ["coalesce", rank, 6], 0, 20, 6, 12], "symbol-sort-key": ["coalesce", rank, 9],
      },
      paint: paint(place),
    },
  ]; // prettier-ignore
}

function liveLayers() {
  const { accent, other, ink, older, paper } = colours();
  const layer = (id, type, source, paint, more = {}) => ({ id, type, source, paint, ...more });
  const round = { layout: { "line-cap": "round", "line-join": "round" } };
  return [
    layer("fence-area", "fill", "fence", { "fill-color": accent, "fill-opacity": 0.07 }),
    layer("fence-edge", "line", "fence", { "line-color": accent, "line-width": 2.5, "line-dasharray": [2, 1.6] }),
    layer("within-area", "fill", "within", { "fill-color": other, "fill-opacity": 0.16 }),
    layer("within-edge", "line", "within", { "line-color": other, "line-width": 2 }),
    ...["ways", "moving"].flatMap((source) => [
      layer(`${source}-casing`, "line", source, { "line-color": paper, "line-width": byKind(8.5, 0, 7), "line-opacity": byKind(0.85, 0, 0.85) }, round),
      layer(`${source}-line`, "line", source, { "line-color": byKind(ink, older, other), "line-width": byKind(5, 3, 3.5) }, round),
    ]),
    layer("reports-points", "circle", "reports", {
      "circle-color": accent, "circle-radius": 4.5, "circle-opacity": ["get", "age"],
      "circle-stroke-color": paper, "circle-stroke-width": 1.2, "circle-stroke-opacity": ["get", "age"],
    }),
  ]; // prettier-ignore
}

/**
 * The chance of a report around a point, which falls as e^(−ε·distance): blurred discs, one over the other.
 * @param {[number, number]} at
 */
function heatDiscs(at, epsilon) {
  const pixelM = (40_075_017 * Math.cos((at[1] * Math.PI) / 180)) / 512; // of a pixel at zoom 0
  return HEAT.map((reach) => feature("Point", at, { radius: (1000 * reach) / epsilon / pixelM }));
}

/** The style of the map in the colours of the theme. */
function style({ roads, scenery }) {
  const geojson = (data, more = {}) => ({ type: "geojson", data, ...more });
  return {
    version: 8,
    glyphs: GLYPHS,
    sources: {
      ...(roads ? { roads: geojson(mapUrl("roads"), { maxzoom: 14 }) } : {}),
      ...(scenery ? { scenery: geojson(mapUrl("scenery"), { maxzoom: 14 }) } : {}),
      // Without a tolerance of 0, circles have corners.
      ...Object.fromEntries(LIVE.map((name) => [name, geojson(NOTHING, { tolerance: 0 })])),
    },
    layers: [
      { id: "paper", type: "background", paint: { "background-color": colours().paper } },
      ...(scenery ? sceneryLayers() : []),
      ...(roads ? roadLayers() : []),
      {
        id: "heat",
        type: "circle",
        source: "heat",
        paint: {
          "circle-color": colours().accent,
          "circle-radius": ["interpolate", ["exponential", 2], ["zoom"], 0, ["get", "radius"], 20, ["*", 2 ** 20, ["get", "radius"]]],
          "circle-blur": 1,
          "circle-opacity": 0.11,
        },
      },
      ...(scenery ? labelLayers() : []),
      ...liveLayers(),
    ],
  };
}

export class CityMap {
  /**
   * @param {HTMLElement} container
   * @param {object} city What the service told in the beginning.
   */
  constructor(container, city) {
    this.city = city;
    this.data = {};
    this.waiting = null;
    const [south, west, north, east] = city.area;
    const credit = city.credit && element("span", {}, city.credit).innerHTML; // MapLibre reads it as markup; it is text
    this.map = new maplibregl.Map({
      container,
      style: style(city),
      bounds: [[west, south], [east, north]],
      attributionControl: credit ? { compact: false, customAttribution: credit } : false,
      dragRotate: false,
      pitchWithRotate: false,
      maxPitch: 0,
      fadeDuration: 0,
      locale: { "Map.Title": "Map of the city. Arrow keys move it, plus and minus zoom." },
    }); // prettier-ignore
    this.map.touchZoomRotate.disableRotation();
    this.map.keyboard.disableRotation();
    this.map.addControl(new maplibregl.NavigationControl({ showCompass: false }), "top-right");
    this.map.addControl(new maplibregl.ScaleControl({ unit: "metric" }), "bottom-left");
    this.map.on("render", () => {
      if (LIVE.every((name) => this.map.getSource(name) && this.map.isSourceLoaded(name))) this.waiting = null;
    });
    /** Settled when the map can be drawn on. */
    this.ready = this.map.once("style.load");
    /** Settled when all that was there in the beginning is drawn. */
    this.loaded = this.map.once("load");
  }

  /** Whether it has drawn what it was given, or was given it just now. */
  get settled() {
    return this.waiting === null || performance.now() - this.waiting < LAG_MS;
  }

  /** Draw in the colours of the theme. */
  async paint() {
    await this.ready;
    this.map.setStyle(style(this.city), { diff: false });
    await this.map.once("style.load");
    for (const [name, features] of Object.entries(this.data)) this.set(name, features);
  }

  set(source, features) {
    this.data[source] = features;
    this.waiting ??= performance.now();
    this.map.getSource(source)?.setData({ type: "FeatureCollection", features });
  }

  /**
   * Draw lines: the true way, its older parts, and the guess.
   * @param {"ways"|"moving"} source What changes with a report, or with every frame.
   * @param {{kind: string, points: number[][]}[]} ways
   */
  showWays(source, ways) {
    const lines = ways.filter(({ points }) => points.length > 1);
    this.set(source, lines.map(({ kind, points }) => feature("LineString", points, { kind })));
  }

  /** Draw reports. @param {{at: number[], age: number}[]} reports An age of 1 is new. */
  showReports(reports) {
    this.set("reports", reports.map(({ at, age }) => feature("Point", at, { age })));
  }

  /** Draw a circle, for the fence or for the attacker; null: none. @param {"fence"|"within"} source */
  showCircle(source, at, metres) {
    this.set(source, at === null ? [] : [feature("Polygon", [circle(at, metres)])]);
  }

  /** Colour where a report from a point falls; null: nowhere. */
  showHeat(at, epsilon) {
    this.set("heat", at ? heatDiscs(at, epsilon) : []);
  }

  /** Take all off the map that is not the city. */
  clear() {
    for (const name of LIVE) this.set(name, []);
  }

  /** Whether all of a box can be seen. */
  sees(box) {
    return box.every((corner) => this.map.getBounds().contains(corner));
  }

  /** Move so that a box can be seen. */
  fit(box) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.map.fitBounds(box, { padding: 40, maxZoom: 15.5, duration: still ? 0 : 700 });
  }
}

/** A mark on the map; it can be dragged, or moved with the arrow keys, if there is something to call when it was. */
export class Mark {
  /**
   * @param {CityMap} city
   * @param {string} kind A class of the style sheet.
   * @param {string} label Its name, for screen readers.
   * @param {(point: [number, number]) => void} [moved]
   */
  constructor(city, kind, label, moved) {
    this.city = city;
    this.shape = element("span", { class: `marker ${kind}${moved ? " movable" : ""}`, role: moved ? "button" : "img" });
    this.label = label;
    this.marker = new maplibregl.Marker({ element: this.shape, draggable: Boolean(moved) });
    if (moved) this.makeMovable(moved);
  }

  /** Put it somewhere; null takes it off the map. */
  put(point) {
    if (point === null) {
      this.marker.remove();
      this.at = null;
      return;
    }
    this.marker.setLngLat(point);
    if (!this.at) {
      this.marker.addTo(this.city.map);
      this.shape.setAttribute("aria-label", this.label); // MapLibre names every marker "Map marker"
    }
    this.at = point;
  }

  makeMovable(moved) {
    this.shape.tabIndex = 0;
    this.shape.setAttribute("aria-roledescription", "marker, moved with the arrow keys");
    const move = (point) => {
      this.put(point);
      moved(point);
    };
    this.marker.on("dragend", () => move(this.marker.getLngLat().toArray()));
    this.shape.addEventListener("click", (event) => event.stopPropagation());
    this.shape.addEventListener("keydown", (event) => {
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      event.stopPropagation();
      move(nextPoint(this.at, event.key, 100));
    });
  }
}

/** A map of the city, drawn by MapLibre from what this service has: roads, cells of places, borders of zones. */

/* global maplibregl */
import { boxAround } from "./geometry.js";
import { mapUrl } from "./service.js";
import { colours, STEPS } from "./theme.js";

const NOTHING = { type: "FeatureCollection", features: [] };
const WIDTHS = { 0: [1.2, 5], 1: [0.9, 4], 2: [0.6, 3], 3: [0.3, 2] };

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

function heatColour(palette) {
  const steps = STEPS.flatMap((step, index) => [step, palette[index + 1]]);
  return ["step", ["coalesce", ["feature-state", "probability"], 0], palette[0], ...steps];
}

/** The style of the map in the colours of the theme. */
function style(roads, palette) {
  const colour = colours();
  const byRank = (values) => ["match", ["get", "rank"], 0, values[0], 1, values[1], 2, values[2], values[3]];
  const width = [0, 1].map((end) => byRank([0, 1, 2, 3].map((rank) => WIDTHS[rank][end])));
  const geojson = (data) => ({ type: "geojson", data });
  return {
    version: 8,
    sources: {
      ...(roads ? { roads: { ...geojson(mapUrl("roads")), maxzoom: 14 } } : {}),
      cells: geojson(mapUrl("cells")),
      borders: geojson(NOTHING),
      steps: geojson(NOTHING),
    },
    layers: [
      { id: "paper", type: "background", paint: { "background-color": colour.paper } },
      {
        id: "heat",
        type: "fill",
        source: "cells",
        paint: {
          "fill-color": heatColour(colour[palette]),
          "fill-opacity": ["case", ["==", ["feature-state", "probability"], null], 0, 0.92],
          "fill-antialias": false,
        },
      },
      ...(roads
        ? [
            {
              id: "roads",
              type: "line",
              source: "roads",
              layout: { "line-cap": "round", "line-join": "round" },
              paint: {
                "line-color": byRank([colour.mainRoad, colour.mainRoad, colour.road, colour.road]),
                "line-width": ["interpolate", ["exponential", 1.5], ["zoom"], 10, width[0], 16, width[1]],
              },
            },
          ]
        : [{ id: "places", type: "line", source: "cells", paint: { "line-color": colour.road, "line-width": 0.5 } }]),
      {
        id: "borders",
        type: "line",
        source: "borders",
        paint: { "line-color": colour.border, "line-width": 1.4, "line-dasharray": [3, 2], "line-opacity": 0.75 },
      },
      {
        id: "ways",
        type: "line",
        source: "steps",
        filter: ["==", ["geometry-type"], "LineString"],
        layout: { "line-cap": "round", "line-join": "round" },
        paint: {
          "line-color": ["match", ["get", "kind"], "true", colour.ink, "guess", colour.other, colour.accent],
          "line-width": ["match", ["get", "kind"], "true", 4, "guess", 2.5, 1],
          "line-opacity": ["match", ["get", "kind"], "true", 0.85, "guess", 0.9, 0.45],
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
    ],
  };
}

export class CityMap {
  /**
   * @param {string} container The id of the element to draw in.
   * @param {{places: [number, number][], roads: boolean}} city
   */
  constructor(container, city) {
    this.city = city;
    this.palette = "report";
    this.coloured = new Set();
    this.map = new maplibregl.Map({
      container,
      style: style(city.roads, this.palette),
      bounds: boxAround(city.places),
      fitBoundsOptions: { padding: 40 },
      attributionControl: false,
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

  /** Draw in the colours of the theme, and of what is shown: "report" or "conclusion". */
  async paint(palette = this.palette) {
    this.palette = palette;
    await this.ready;
    for (const { id, paint } of style(this.city.roads, this.palette).layers) {
      for (const [name, value] of Object.entries(paint)) this.map.setPaintProperty(id, name, value);
    }
  }

  /** Show the borders of a bundle's zones. */
  async showBorders(sha256) {
    await this.ready;
    this.map.getSource("borders").setData(mapUrl(`borders/${sha256}`));
  }

  /** Colour the cells of places by their probability. @param {number[]} places @param {number[]} probability */
  async showHeat(places, probability) {
    await this.ready;
    const wanted = new Set(places);
    for (const id of this.coloured) if (!wanted.has(id)) this.map.removeFeatureState({ source: "cells", id });
    places.forEach((id, index) =>
      this.map.setFeatureState({ source: "cells", id }, { probability: probability[index] }),
    );
    this.coloured = wanted;
  }

  /** Draw ways over places, each with its kind, and the places that were reported, with their age. */
  async showWays(ways, reported) {
    const at = (place) => this.city.places[place];
    await this.ready;
    this.map.getSource("steps").setData({
      type: "FeatureCollection",
      features: [
        ...ways.filter((way) => way.places.length > 1).map((way) => line(way.places.map(at), { kind: way.kind })),
        ...reported.map(({ place, age }) => point(at(place), { age })),
      ],
    });
  }

  /** Move so that some places can be seen. */
  fit(places) {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const box = boxAround(places.map((place) => this.city.places[place]));
    this.map.fitBounds(box, { padding: 50, maxZoom: 15, duration: still ? 0 : 600 });
  }
}

/** Keep two maps at the same part of the city. @param {CityMap} one @param {CityMap} other */
export function moveTogether(one, other) {
  let moving = false;
  const follow = (leader, follower) =>
    leader.map.on("move", () => {
      if (moving) return;
      moving = true;
      follower.map.jumpTo({ center: leader.map.getCenter(), zoom: leader.map.getZoom() });
      moving = false;
    });
  follow(one, other);
  follow(other, one);
}

/** Markers on a map: some can be dragged, or moved with the arrow keys, from place to place or anywhere. */

/* global maplibregl */
import { nearestPlace, nextPlace, nextPoint } from "./geometry.js";
import { coordinate, element } from "./words.js";

class Marker {
  /**
   * @param {import("./city_map.js").CityMap} city
   * @param {string} kind One of "present", "previous", "reported" and "guess": a class of the style sheet.
   * @param {string} label Its name, for screen readers.
   * @param {boolean} movable
   */
  constructor(city, kind, label, movable) {
    this.city = city;
    this.label = label;
    this.target = null;
    const shape = element("span", { class: `marker ${kind}`, role: "img" });
    this.shape = shape;
    this.marker = new maplibregl.Marker({ element: shape, draggable: movable });
    if (movable) this.makeMovable();
  }

  /** Put it somewhere; null takes it off the map. */
  put(target) {
    this.target = target;
    if (target === null) {
      this.marker.remove();
      return;
    }
    this.marker.setLngLat(this.pointOf(target)).addTo(this.city.map);
    // MapLibre names every marker "Map marker"; ours say what they are.
    this.shape.setAttribute("aria-label", `${this.label} at ${this.nameOf(target)}`);
  }

  makeMovable() {
    this.shape.classList.add("movable");
    this.shape.tabIndex = 0;
    this.shape.setAttribute("role", "button");
    this.shape.setAttribute("aria-roledescription", "marker, moved with the arrow keys");
    const move = (target) => {
      this.put(target);
      this.moved(target);
    };
    this.marker.on("dragend", () => {
      const { lng, lat } = this.marker.getLngLat();
      move(this.nearest([lng, lat]));
    });
    this.shape.addEventListener("click", (event) => event.stopPropagation());
    this.shape.addEventListener("keydown", (event) => {
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      event.stopPropagation();
      move(this.next(event.key));
    });
  }
}

/** A marker on a place, by its number. */
export class PlaceMarker extends Marker {
  /** @param {{among?: () => number[], moved?: (place: number) => void}} options Where it may be moved to, if it may. */
  constructor(city, kind, label, { among, moved } = {}) {
    super(city, kind, label, Boolean(moved));
    Object.assign(this, { among, moved });
  }

  pointOf = (place) => this.city.city.places[place];
  nameOf = (place) => `place ${place}`;
  nearest = (point) => nearestPlace(this.city.city.places, this.among(), point);
  next = (key) => nextPlace(this.city.city.places, this.among(), this.target, key);
}

/** A marker on a coordinate: longitude and latitude. */
export class PointMarker extends Marker {
  /** @param {{step?: () => number, moved?: (point: [number, number]) => void}} options Metres for an arrow key. */
  constructor(city, kind, label, { step, moved } = {}) {
    super(city, kind, label, Boolean(moved));
    Object.assign(this, { step, moved });
  }

  pointOf = (point) => point;
  nameOf = (point) => coordinate(point);
  nearest = (point) => point;
  next = (key) => nextPoint(this.target, key, this.step());
}

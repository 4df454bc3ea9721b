/** Markers on a map: some can be dragged, or moved with the arrow keys from place to place. */

/* global maplibregl */
import { nearestPlace, nextPlace } from "./geometry.js";
import { element } from "./words.js";

export class PlaceMarker {
  /**
   * @param {import("./city_map.js").CityMap} city
   * @param {string} kind One of "present", "previous", "reported" and "guess": a class of the style sheet.
   * @param {string} label What it is, for those who cannot see it.
   * @param {{among?: () => number[], moved?: (place: number) => void}} options Where it may be moved to, if it may.
   */
  constructor(city, kind, label, { among, moved } = {}) {
    this.city = city;
    this.label = label;
    this.place = null;
    const shape = element("span", { class: `marker ${kind}`, role: "img" });
    this.shape = shape;
    this.marker = new maplibregl.Marker({ element: shape, draggable: Boolean(moved) });
    if (moved) this.makeMovable(among, moved);
  }

  /** Put it on a place; null takes it off the map. */
  put(place) {
    this.place = place;
    if (place === null) {
      this.marker.remove();
      return;
    }
    this.marker.setLngLat(this.city.city.places[place]).addTo(this.city.map);
    // MapLibre names every marker "Map marker"; ours say what they are.
    this.shape.setAttribute("aria-label", `${this.label} at place ${place}`);
  }

  makeMovable(among, moved) {
    this.shape.classList.add("movable");
    this.shape.tabIndex = 0;
    this.shape.setAttribute("role", "button");
    this.shape.setAttribute("aria-roledescription", "marker, moved with the arrow keys");
    this.marker.on("dragend", () => {
      const { lng, lat } = this.marker.getLngLat();
      const place = nearestPlace(this.city.city.places, among(), [lng, lat]);
      this.put(place);
      moved(place);
    });
    this.shape.addEventListener("click", (event) => event.stopPropagation());
    this.shape.addEventListener("keydown", (event) => {
      if (!event.key.startsWith("Arrow")) return;
      event.preventDefault();
      event.stopPropagation();
      const place = nextPlace(this.city.city.places, among(), this.place, event.key);
      this.put(place);
      moved(place);
    });
  }
}

/** What all views of the map share. */

export const byId = (id) => document.getElementById(id);

export class View {
  /**
   * @param {string} name Of the view, in the address.
   * @param {import("./state.js").State} state
   * @param {object} overview What the service told in the beginning.
   * @param {import("./city_map.js").CityMap} map
   * @param {(error: Error|null) => void} report Tells what went wrong.
   */
  constructor(name, state, overview, map, report) {
    Object.assign(this, { name, state, overview, map, report });
  }

  get active() {
    return this.state.values.view === this.name;
  }

  get bundle() {
    return this.overview.bundles.find(({ sha256 }) => sha256 === this.state.values.bundle);
  }

  /** The lattice that is chosen, or the first one. */
  get latticeBundle() {
    return [this.bundle, ...this.overview.bundles].find(({ kind }) => kind === "lattice");
  }

  /** Call a function with longitude and latitude of a click on the map, while the view is shown. */
  onClick(clicked) {
    this.map.map.on("click", ({ lngLat: { lng, lat } }) => this.active && clicked([lng, lat]));
  }

  /** Do some work, and tell what went wrong with it. @param {() => Promise<void>} work */
  async attempt(work) {
    try {
      await work();
      this.report(null);
    } catch (error) {
      this.report(error);
    }
  }
}

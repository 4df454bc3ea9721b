/** What the reader has chosen. Views listen, and draw themselves again when it changes. */

export class State extends EventTarget {
  /** @param {object} values */
  constructor(values) {
    super();
    this.values = values;
  }

  /** Change some values, and tell everyone which. @param {object} changes */
  set(changes) {
    const changed = Object.keys(changes).filter((name) => this.values[name] !== changes[name]);
    if (!changed.length) return;
    Object.assign(this.values, changes);
    this.dispatchEvent(new CustomEvent("change", { detail: new Set(changed) }));
  }

  /** Call a function after every change of one of some values. */
  on(names, listener) {
    this.addEventListener("change", (event) => {
      if (names.some((name) => event.detail.has(name))) listener();
    });
  }
}

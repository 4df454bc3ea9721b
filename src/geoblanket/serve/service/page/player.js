/** A slider over the reports of a trip, and a button that plays it. */

export class Player {
  /**
   * @param {HTMLButtonElement} button
   * @param {HTMLInputElement} slider
   * @param {HTMLOutputElement} clock
   * @param {{show: (now: number) => void, reportMs: number}} options What shows the trip up to a report.
   */
  constructor(button, slider, clock, { show, reportMs }) {
    Object.assign(this, { button, slider, clock, reportMs, showReport: show, labels: [], timer: null });
    button.addEventListener("click", () => (this.timer === null ? this.play() : this.stop()));
    slider.addEventListener("input", () => {
      this.stop();
      this.show(this.now);
    });
  }

  get now() {
    return Number(this.slider.value);
  }

  get last() {
    return this.labels.length - 1;
  }

  /** Take what to write at each report of another trip. @param {string[]} labels */
  take(labels) {
    this.labels = labels;
    this.slider.max = this.last;
  }

  show(now) {
    this.slider.value = now;
    this.slider.setAttribute("aria-valuetext", `${now + 1} of ${this.labels.length}`);
    this.clock.textContent = this.labels[now];
    this.showReport(now);
  }

  play() {
    if (!this.labels.length) return;
    this.button.textContent = "Pause";
    let now = this.now >= this.last ? 0 : this.now;
    this.show(now);
    this.timer = setInterval(() => {
      now += 1;
      this.show(now);
      if (now >= this.last) this.stop();
    }, this.reportMs());
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }
}

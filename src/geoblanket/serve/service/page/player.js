/** Plays parts one after another, sixty times a second; a slider goes to any moment. */

export class Player {
  /**
   * @param {{button: HTMLButtonElement, slider: HTMLInputElement, ready: () => boolean}} controls Frames are skipped while
   *   what they are drawn on is not ready, so that all that moves moves together.
   */
  constructor({ button, slider, ready }) {
    Object.assign(this, { button, slider, ready, parts: [], at: 0, frame: null });
    slider.max = 1000;
    button.addEventListener("click", () => (this.playing ? this.stop() : this.play()));
    slider.addEventListener("input", () => {
      this.stop();
      this.show((slider.value / slider.max) * this.length);
    });
  }

  get playing() {
    return this.frame !== null;
  }

  get length() {
    return this.parts.reduce((sum, { seconds }) => sum + seconds, 0);
  }

  /** @param {{name: string, seconds: number, show: (share: number) => void}[]} parts */
  take(parts) {
    this.stop();
    this.parts = parts;
  }

  /** Show a moment, in seconds from the beginning. */
  show(at) {
    if (!this.parts.length) return;
    this.at = Math.min(Math.max(at, 0), this.length);
    let before = 0;
    const part = this.parts.find(({ seconds }) => this.at <= (before += seconds)) ?? this.parts.at(-1);
    const share = 1 - (before - this.at) / part.seconds;
    this.slider.value = Math.round((this.at / this.length) * this.slider.max);
    this.slider.setAttribute("aria-valuetext", `${part.name}, ${Math.round(100 * share)} %`);
    part.show(share);
  }

  /** Where the last moment is. */
  showEnd() {
    this.show(this.length);
  }

  play() {
    if (!this.parts.length) return;
    const from = this.at >= this.length ? 0 : this.at;
    let start = null;
    const step = (now) => {
      start ??= now;
      const at = from + (now - start) / 1000;
      this.frame = requestAnimationFrame(step);
      if (at >= this.length) this.stop();
      if (at >= this.length || this.ready()) this.show(at);
    };
    this.frame = requestAnimationFrame(step);
    this.button.textContent = "Stop";
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    this.button.textContent = "Play";
  }
}

/** The choice of a mechanism: a slider for ε and one for the weight of the past, over the bundles that are served. */

import { holdInWords, element, factor, weightsInWords } from "./words.js";

const KINDS = { lattice: "Lattice (trips)", zones: "Zones (one report)" };

const weightKey = (bundle) => JSON.stringify(bundle.history_weights);
const weightSize = (bundle) =>
  bundle.history_weights.reduce((sum, weight) => sum + (weight === null ? 1e9 : weight), 0);

function weightHint(weights) {
  if (!weights.length) return "Reports do not look at the past: there is one distribution for each place.";
  if (weights.includes(null)) return "∞: the previous place is taken as known to the recipient, and is not protected.";
  if (weights.every((weight) => weight === 0))
    return "0: the past must not make any difference to a report, so it cannot help either.";
  return "How much earlier places count as part of the secret. More of it: the past helps more, and is protected less.";
}

export class Choice {
  /**
   * @param {HTMLElement} container
   * @param {string} name "a" or "b".
   * @param {object[]} bundles
   * @param {(sha256: string) => void} chosen
   */
  constructor(container, name, bundles, chosen) {
    this.all = bundles;
    this.chosen = chosen;
    this.epsilon = this.slider(name, "epsilon", "Privacy parameter ε", "ε");
    this.weight = this.slider(name, "weight", "Weight of the past w", "w");
    this.kind = element("select", { id: `kind-${name}`, onchange: () => this.change(this.kind.value) });
    this.kind.append(...Object.entries(KINDS).map(([kind, words]) => new Option(words, kind)));
    const kindLabel = element("label", { for: `kind-${name}` }, "Kind of mechanism");
    const kindField = element("div", { class: "field" }, kindLabel, this.kind);
    kindField.hidden = new Set(bundles.map((bundle) => bundle.kind)).size < 2;
    this.variant = element("select", { id: `variant-${name}`, onchange: () => chosen(this.variant.value) });
    this.variantField = element(
      "div",
      { class: "field" },
      element("label", { for: `variant-${name}` }, "Bundle"),
      this.variant,
    );
    container.append(kindField, this.epsilon.field, this.weight.field, this.variantField);
    this.epsilon.input.addEventListener("input", () => this.move("epsilon"));
    this.weight.input.addEventListener("input", () => this.move("weight"));
  }

  /** Take the bundle of a kind whose ε is nearest. */
  change(kind) {
    const distance = (bundle) => Math.abs(Math.log(bundle.epsilon / this.shown.epsilon));
    const others = this.all.filter((bundle) => bundle.kind === kind);
    this.chosen(others.sort((a, b) => distance(a) - distance(b))[0].sha256);
  }

  /** Offer the bundles of a kind. */
  offer(kind) {
    this.bundles = this.all.filter((bundle) => bundle.kind === kind);
    this.epsilons = [...new Set(this.bundles.map((bundle) => bundle.epsilon))].sort((a, b) => a - b);
    const byKey = new Map(this.bundles.map((bundle) => [weightKey(bundle), bundle]));
    this.weights = [...byKey.values()].sort((a, b) => weightSize(a) - weightSize(b)).map(weightKey);
    for (const [{ input, why }, { length }] of [[this.epsilon, this.epsilons], [this.weight, this.weights]]) {
      input.max = Math.max(length - 1, 0);
      input.disabled = length < 2;
      why.hidden = length > 1;
    }
    this.weight.field.hidden = kind === "lattice";
    this.kind.value = kind;
  }

  slider(name, what, title, symbol) {
    const id = `${what}-${name}`;
    const input = element("input", { type: "range", id, min: 0, step: 1, "aria-describedby": `${id}-why ${id}-hint` });
    const output = element("output", { for: id });
    const hint = element("p", { class: "hint", id: `${id}-hint` });
    const why = element("p", { class: "hint why", id: `${id}-why` });
    why.textContent = `Only one ${symbol} is served of this kind: serve bundles with other values to compare.`;
    const label = element("label", { for: id }, `${title}: `, output);
    return { input, output, hint, why, field: element("div", { class: "field" }, label, input, why, hint) };
  }

  /** Take the bundle at the sliders; where there is none, the nearest with what was moved. */
  move(moved) {
    const epsilon = this.epsilons[this.epsilon.input.value];
    const weight = this.weights[this.weight.input.value];
    const distance = (bundle) => {
      const epsilonOff = Math.abs(this.epsilons.indexOf(bundle.epsilon) - this.epsilons.indexOf(epsilon));
      const weightOff = Math.abs(this.weights.indexOf(weightKey(bundle)) - this.weights.indexOf(weight));
      return moved === "epsilon" ? 1000 * epsilonOff + weightOff : epsilonOff + 1000 * weightOff;
    };
    this.chosen([...this.bundles].sort((a, b) => distance(a) - distance(b))[0].sha256);
  }

  /** Show which bundle is chosen. */
  show(sha256) {
    const bundle = this.all.find((candidate) => candidate.sha256 === sha256);
    this.shown = bundle;
    this.offer(bundle.kind);
    this.epsilon.input.value = this.epsilons.indexOf(bundle.epsilon);
    this.epsilon.output.textContent = `${bundle.epsilon} per km`;
    this.epsilon.input.setAttribute("aria-valuetext", `${bundle.epsilon} per kilometre`);
    this.epsilon.hint.textContent =
      `Smaller is more private. One report shifts the odds between two ${bundle.kind === "lattice" ? "coordinates" : "places"} ` +
      `500 m apart by a factor of at most ${factor(bundle.epsilon * 0.5)}.`;
    this.weight.input.value = this.weights.indexOf(weightKey(bundle));
    this.weight.output.textContent = weightsInWords(bundle.history_weights);
    this.weight.input.setAttribute("aria-valuetext", weightsInWords(bundle.history_weights));
    this.weight.hint.textContent = weightHint(bundle.history_weights);
    this.showVariants(bundle);
  }

  showVariants(bundle) {
    const alike = this.bundles.filter(
      (candidate) => candidate.epsilon === bundle.epsilon && weightKey(candidate) === weightKey(bundle),
    );
    this.variantField.hidden = alike.length < 2;
    const words = (candidate) => (bundle.kind === "lattice" ? `${candidate.name}: ${holdInWords(candidate)}` : candidate.name);
    this.variant.replaceChildren(...alike.map((candidate) => new Option(words(candidate), candidate.sha256)));
    this.variant.value = bundle.sha256;
  }
}

// A card for each run: what it is, what it is doing, how far it is, and how to go on with it.

class Card {
  constructor(host, run, toggled) {
    this.run = run;
    this.card = html("article", { class: "card" }, host);
    const head = html("div", { class: "head" }, this.card);
    const heading = html("h2", {}, head);
    this.dot = html("i", { class: "dot", "aria-hidden": "true" }, heading);
    this.name = html("span", {}, heading);
    this.state = html("span", { class: "badge" }, head);
    this.what = html("p", { class: "what" }, this.card);
    this.bar = html("div", { class: "progress", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, this.card);
    this.done = html("div", {}, this.bar);
    this.far = html("p", { class: "far" }, this.card);
    this.numbers = html("dl", { class: "numbers-now" }, this.card);
    this.problems = html("ul", { class: "problems", hidden: true }, this.card);
    this.sentence = html("p", { class: "sentence", hidden: true }, this.card);
    this.command = html("div", { class: "command", hidden: true }, this.card);
    const line = html("pre", { tabindex: "0" }, this.command);
    this.line = html("code", {}, line);
    makeCopying(html("button", { type: "button", class: "copy" }, this.command, "Copy"));
    const label = html("label", { class: "shown" }, this.card);
    this.shown = html("input", { type: "checkbox" }, label);
    label.append("in the charts");
    this.label = label;
    this.shown.addEventListener("change", () => { run.shown = this.shown.checked; toggled(); });
  }

  update(several) {
    const { run } = this;
    const { facts } = run;
    this.card.dataset.state = facts.state;
    this.dot.style.background = seriesColour(run.colour);
    this.dot.hidden = !several;
    this.name.textContent = facts.name;
    this.name.title = facts.path;
    this.state.textContent = STATES[facts.state] ?? facts.state;
    const seeds = facts.seeds ? countText(facts.seeds, "seed") : "";
    this.what.textContent = [facts.env, facts.reward, seeds].filter(Boolean).join(" · ");
    this.updateProgress(facts);
    this.updateNumbers(run);
    this.problems.replaceChildren(...facts.problems.map((problem) => html("li", {}, null, problem)));
    this.problems.hidden = !facts.problems.length;
    this.sentence.textContent = facts.sentence;
    this.sentence.hidden = !facts.sentence;
    if (this.line.textContent !== facts.command) this.line.textContent = facts.command;
    this.command.hidden = !facts.command;
    this.label.hidden = !several;
    this.shown.checked = run.shown;
    this.shown.setAttribute("aria-label", `Show ${facts.name} in the charts`);
  }

  updateProgress({ step, steps, unit, rate, secondsLeft, secondsAgo, state, kind, name }) {
    const share = steps ? Math.min(1, step / steps) : 0;
    this.bar.hidden = !steps;
    this.done.style.width = `${100 * share}%`;
    this.bar.setAttribute("aria-valuenow", Math.round(100 * share));
    this.bar.setAttribute("aria-label", `How far ${name} is`);
    const far = steps ? `${numberText(step)} of ${numberText(steps)} ${unit} (${Math.floor(100 * share)} %)` : `${numberText(step)} ${unit}`;
    const parts = [kind === "collect" ? "" : far];
    if (rate) parts.push(`${numberText(Number(rate.toPrecision(3)))} ${unit}/s`);
    if (secondsLeft) parts.push(`${durationText(secondsLeft)} left`);
    if (state === "running" && secondsAgo !== null) {
      const ago = secondsAgo < 1 ? "just now" : `${durationText(secondsAgo)} ago`;
      parts.push(step ? `last line ${ago}` : `begun ${ago}, nothing logged yet`);
    } else if (state !== "finished" && secondsAgo !== null && step) parts.push(`last line ${durationText(secondsAgo)} ago`);
    this.far.textContent = parts.filter(Boolean).join(" · ");
  }

  updateNumbers(run) {
    const latest = [["coverage", run.facts.counted], ["episodic_entropy", "bits of entropy"], ["extrinsic_return", "task return"]];
    this.numbers.replaceChildren();
    for (const [column, noun] of latest) {
      const curve = run.curves.columns[column];
      const at = curve ? curve.mean.findLastIndex((value) => value !== null) : -1;
      if (at < 0) continue;
      const entry = html("div", {}, this.numbers);
      html("dt", {}, entry, noun);
      const digits = Math.abs(curve.mean[at]) >= 100 ? 0 : 3;
      const text = (value) => numberText(digits ? Number(value.toPrecision(digits)) : Math.round(value));
      const value = html("dd", {}, entry, text(curve.mean[at]));
      const [low, high] = [curve.low?.[at], curve.high?.[at]];
      if (low != null && high != null && text(low) !== text(high)) html("span", {}, value, ` (${text(low)} to ${text(high)})`);
    }
  }
}

// The curves of an environment: a chart for each quantity, with the lines of all runs that are shown.

const FIRST_CHARTS = [
  "coverage", "furthest", "episodic_entropy", "rewards", "episode_length", "extrinsic_return", "memory_size", "policy_entropy",
];
// where nobody explores: of datasets and of encoders
const ALSO_FIRST = ["normalised_score", "training_loss", "validation_loss"];
const NOT_DRAWN = ["wall_seconds", "episodes", "dataset", "agent", "updates", "env_steps_per_second", "updates_per_second"];
const TERM = /^reward_(?!deviation$)/;
const LEAST_FIRST = 2; // with fewer, everything is shown at once

// {title, yLabel, series, …} of every chart, those to show first in front.
function chartsOf(runs) {
  const columns = [...new Set(runs.flatMap((run) => Object.keys(run.curves.columns)))].filter((c) => !NOT_DRAWN.includes(c));
  const terms = columns.filter((column) => TERM.test(column)).sort(); // episodic before lifelong
  const charts = columns.filter((column) => !TERM.test(column)).map((column) => chartOf(column, runs));
  if (runs.length === 1 && terms.length) charts.push(termsOf(terms, runs[0]));
  else charts.push(...terms.map((column) => ({ ...chartOf(column, runs), place: "rewards" })));
  const order = [...FIRST_CHARTS, ...ALSO_FIRST];
  const rank = (chart) => (order.includes(chart.place) ? order.indexOf(chart.place) : order.length);
  charts.sort((a, b) => rank(a) - rank(b));
  const many = charts.filter((chart) => rank(chart) < order.length).length >= LEAST_FIRST;
  const until = Math.max(0, ...runs.map((run) => run.curves.step.at(-1) ?? 0)); // the same in all of them
  return charts.map((chart) => ({ ...chart, until, first: !many || rank(chart) < order.length }));
}

function chartOf(column, runs) {
  const having = runs.filter((run) => run.curves.columns[column]);
  const series = having.map((run) => lineOf(run, column, run.label, run.colour));
  if (column === "episodic_entropy") series.push(...ceilings(having));
  const random = having.find((run) => run.facts.random[column] !== undefined);
  if (random) series.push(levelLine("random policy", random.facts.random[column], series));
  const unit = having[0].facts.unit;
  const xLabel = unit === "steps" ? "environment steps per seed" : unit;
  const counts = DATA.counting.includes(column) && column !== "furthest";
  return { name: column, place: column, title: titleText(column), yLabel: axisText(column), xLabel, counts, series, fromZero: true };
}

// The terms of one run's reward share their axes: which of them pays more?
function termsOf(columns, run) {
  const series = columns.map((column, i) => lineOf(run, column, column.replace("reward_", "").replaceAll("_", " "), i));
  const chart = { ...chartOf(columns[0], [run]), name: "rewards", place: "rewards", title: "Terms of the reward" };
  return { ...chart, yLabel: "mean reward, before weights", series };
}

// A column at the steps where it has a value: between them no episode ended, which is no gap in the line.
function lineOf(run, column, label, colour) {
  const { mean, low = [], high = [], seeds } = run.curves.columns[column];
  const known = (list) => list.filter((_, i) => mean[i] !== null);
  const line = { label, colour, x: known(run.curves.step), middle: known(mean), low: known(low), high: known(high), ends: [] };
  return { ...line, seeds: seeds?.map(known) };
}

// log2 of an episode's length, which its entropy cannot exceed: the logged entropy over its share of it. Of several runs
// only where they agree.
function ceilings(runs) {
  const found = runs.map((run) => {
    const { episodic_entropy: entropy, entropy_saturation: share } = run.curves.columns;
    if (!share) return null;
    const points = run.curves.step.map((step, i) => [step, share.mean[i] > 1e-3 ? entropy.mean[i] / share.mean[i] : null]);
    return points.filter(([, value]) => value !== null);
  });
  if (!found.length || found.includes(null) || !found.flat().length) return [];
  const [low, high] = range(found.map((points) => points.map(([, value]) => value)));
  if (runs.length > 1 && high > 1.01 * low) return [];
  const longest = found.sort((a, b) => b.at(-1)?.[0] - a.at(-1)?.[0])[0];
  const line = { label: "ceiling, log2 of the length", colour: -1, dashes: "2 3", low: [], high: [], ends: [] };
  return [{ ...line, x: longest.map(([step]) => step), middle: longest.map(([, value]) => value) }];
}

function levelLine(label, value, series) {
  const last = Math.max(1, ...series.map((line) => line.x.at(-1) ?? 0));
  return { label, colour: -1, x: [0, last], middle: [value, value], low: [], high: [], ends: [] };
}

// Keeps the charts of an environment as `chartsOf` wants them; those whose lines are others are made anew.
class Charts {
  constructor(first, more) {
    this.places = { first, more };
    this.drawn = new Map(); // name → {figure, data, redraw, signature}
  }

  update(runs) {
    const wanted = runs.length ? chartsOf(runs) : [];
    const names = new Set(wanted.map((chart) => chart.name));
    for (const name of [...this.drawn.keys()]) if (!names.has(name)) this.remove(name);
    for (const chart of wanted) {
      const signature = JSON.stringify([chart.first, chart.title, chart.series.map((line) => [line.label, line.colour])]);
      if (this.drawn.get(chart.name)?.signature !== signature) this.make(chart, signature);
      const { data, redraw } = this.drawn.get(chart.name);
      Object.assign(data, chart);
      redraw();
    }
    for (const place of ["first", "more"]) {
      const order = wanted.filter((chart) => chart.first === (place === "first")).map((chart) => this.drawn.get(chart.name).figure);
      const present = [...this.places[place].querySelectorAll(":scope > figure.curves")];
      if (order.some((figure, i) => figure !== present[i])) this.places[place].append(...order);
    }
  }

  make(chart, signature) {
    this.remove(chart.name);
    const figure = html("figure", { class: "curves", "data-name": chart.name });
    html("h3", {}, html("figcaption", {}, figure), chart.title);
    const data = { ...chart };
    const redraw = drawCurves(html("div", { class: "drawing" }, figure), data);
    this.drawn.set(chart.name, { figure, data, redraw, signature });
  }

  remove(name) {
    const old = this.drawn.get(name);
    if (!old) return;
    redraws.delete(old.redraw);
    old.figure.remove();
    this.drawn.delete(name);
  }
}

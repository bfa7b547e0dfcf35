// The coverage maps of an environment, a panel per run: as of now, growing, or back at a checkpoint.

const MOST_KEPT = 300; // maps that were fetched
const FRAME_SECONDS = 0.45; // of a playback

class LiveMaps {
  constructor(host) {
    this.figure = html("figure", { class: "maps", hidden: true }, host);
    this.caption = html("figcaption", {}, this.figure);
    html("h3", {}, this.caption, "Coverage map");
    this.drawing = html("div", { class: "drawing" }, this.figure);
    this.fetched = new Map(); // run, step, seed → counts [X, Y]
    this.panels = [];
    this.signature = "";
    this.frames = [];
    this.chosen = null; // null: the newest
    this.seed = "all";
    this.group = { valueLabel: "visits", low: 1, high: 10, logarithmic: true, frames: [""] };
  }

  // Panels for these runs, if they are others than before; then what they show.
  async update(runs) {
    const shown = runs.filter((run) => run.facts.map);
    this.figure.hidden = !shown.length;
    const signature = JSON.stringify(shown.map((run) => [run.index, run.label, run.facts.map.seeds]));
    if (signature !== this.signature) this.build(shown);
    this.signature = signature;
    if (!shown.length) return;
    this.moveFrames([...new Set(shown.flatMap((run) => run.facts.map.steps))].sort((a, b) => a - b));
    await this.show();
  }

  build(runs) {
    for (const panel of this.panels) redraws.delete(panel.redraw);
    this.stop?.();
    this.drawing.replaceChildren();
    this.figure.classList.toggle("several", runs.length > 1);
    const controls = html("div", { class: "controls" }, this.drawing);
    this.addSlider(controls);
    this.addSeeds(runs);
    const places = html("div", { class: "panels" }, this.drawing);
    places.style.maxWidth = `${27 * runs.length}rem`;
    this.panels = runs.map((run) => {
      if (runs.length > 1) DATA.colours[run.label] = run.colour;
      const map = { run, title: run.label, columns: 1, rows: 1, cells: new Uint8Array(1), frames: [""], limits: [[0, 1], [0, 1]] };
      map.panel = mapPanel(places, map);
      map.redraw = drawWhenSized(map.panel.area, (width) => { layMap(map, width); this.paint(map); });
      const point = (event) => { this.pointed = { map, event }; this.read(); };
      map.panel.area.addEventListener("pointermove", point);
      map.panel.area.addEventListener("pointerdown", point);
      map.panel.area.addEventListener("pointerleave", () => {
        this.pointed = null;
        for (const other of this.panels) other.panel.value.textContent = "";
      });
      return map;
    });
    this.writeNumbers = addColourBar(html("div", { class: "below" }, this.drawing), this.group, runs.map((run) => run.facts.map));
  }

  addSlider(controls) {
    this.play = html("button", { type: "button", class: "play", "aria-label": "Play how it filled up" }, controls, "▶");
    this.slider = html("input", { type: "range", min: 0, max: 0, step: 1, value: 0, "aria-label": "Moment of training" }, controls);
    this.output = html("output", {}, controls);
    let timer = null;
    this.stop = () => {
      clearInterval(timer);
      timer = null;
      this.play.textContent = "▶";
      this.play.setAttribute("aria-label", "Play how it filled up");
    };
    this.slider.addEventListener("input", () => { this.stop(); this.choose(Number(this.slider.value)); });
    this.play.addEventListener("click", () => {
      if (timer !== null) return this.stop();
      let at = Number(this.slider.value) === this.frames.length - 1 ? -1 : Number(this.slider.value);
      const next = () => (at < this.frames.length - 1 ? this.choose(++at) : this.stop());
      this.play.textContent = "❚❚";
      this.play.setAttribute("aria-label", "Pause");
      timer = setInterval(next, 1000 * FRAME_SECONDS);
      next();
    });
    this.play.hidden = calm.matches;
  }

  addSeeds(runs) {
    this.caption.querySelector("select")?.remove();
    const most = Math.max(0, ...runs.map((run) => run.facts.map.seeds));
    this.seed = "all";
    if (most < 2) return;
    const select = html("select", { "aria-label": "Seeds on the map" }, this.caption);
    html("option", { value: "all" }, select, "all seeds");
    const seeds = runs.find((run) => run.facts.map.seeds === most).curves.seeds;
    for (let i = 0; i < most; i++) html("option", { value: i }, select, `seed ${seeds[i] ?? i}`);
    select.addEventListener("change", () => { this.seed = select.value; this.show(); });
  }

  // The slider over the checkpoints; it stays at the end when it was there.
  moveFrames(frames) {
    this.frames = frames;
    const last = frames.length - 1;
    if (this.chosen !== null && !frames.includes(this.chosen)) this.chosen = null;
    const at = this.chosen === null ? last : frames.indexOf(this.chosen);
    this.slider.max = last;
    this.slider.value = at;
    this.slider.disabled = this.play.disabled = last < 1;
    this.writeMoment();
  }

  choose(at) {
    this.chosen = at === this.frames.length - 1 ? null : this.frames[at];
    this.slider.value = at;
    this.writeMoment();
    this.show();
  }

  writeMoment() {
    const newest = this.chosen === null;
    const text = `step ${numberText(newest ? this.frames.at(-1) : this.chosen)}`;
    this.output.textContent = newest ? `${text} (newest)` : text;
    this.slider.setAttribute("aria-valuetext", this.output.textContent);
  }

  // Fetches what is to be seen, and paints it.
  async show() {
    const wish = (this.wish = Symbol("the latest"));
    const { seed, panels } = this;
    const moment = this.chosen ?? this.frames.at(-1);
    const wanted = await Promise.all(panels.map(async (map) => {
      const { steps } = map.run.facts.map;
      const newest = await this.counts(map.run, steps.at(-1), seed);
      const step = steps.filter((s) => s <= moment).at(-1);
      return { newest, step, counts: step === undefined ? null : await this.counts(map.run, step, seed) };
    }));
    if (this.wish !== wish || panels !== this.panels) return;
    this.group.high = Math.max(10, ...wanted.map(({ newest }) => (newest ? highest(newest) : 0)));
    this.writeNumbers();
    this.group.frames = [momentText(moment)];
    panels.forEach((map, i) => {
      const gone = wanted[i].step !== undefined && !wanted[i].counts; // the next second has another
      if (!gone) this.fill(map, wanted[i]);
    });
    this.read();
  }

  // Visits per cell; null where they are gone: a newer map has come since, or the run went back to its checkpoint.
  async counts(run, step, seed) {
    const most = run.facts.map.seeds;
    const one = seed === "all" || Number(seed) >= most ? "" : `&seed=${seed}`;
    const { columns, rows, bounds } = run.facts.map; // of a map that grows, as large as it is now
    const key = `${run.index}/${run.facts.generation}/${step}/${one}/${bounds}`;
    if (!this.fetched.has(key)) {
      const found = await asked(`/map?run=${run.index}&step=${step}${one}`);
      if (!found?.cells || found.columns !== columns || found.rows !== rows) return null;
      this.fetched.set(key, new Uint32Array(await unpacked(found.cells)));
      if (this.fetched.size > MOST_KEPT) this.fetched.delete(this.fetched.keys().next().value);
    }
    return this.fetched.get(key);
  }

  fill(map, { step, counts }) {
    const facts = map.run.facts.map;
    const part = this.partOf(facts);
    const [[left, right], [low, high]] = part;
    const cell = facts.bounds.map(([from, to], axis) => (to - from) / [facts.columns, facts.rows][axis]);
    const limits = part.map((edges, axis) => edges.map((edge) => facts.bounds[axis][0] + edge * cell[axis]));
    const moved = JSON.stringify(limits) !== JSON.stringify(map.limits);
    Object.assign(map, facts, { limits, title: map.run.label, columns: right - left, rows: high - low });
    map.frames = [step === undefined ? "not begun by then" : momentText(step)];
    map.counts = new Uint32Array(map.columns * map.rows);
    map.cells = new Uint8Array(map.counts.length);
    const scale = (LEVELS - 1) / Math.log(this.group.high);
    for (let x = left; counts && x < right; x++) {
      for (let y = low; y < high; y++) {
        const visits = counts[x * facts.rows + y];
        const place = (high - 1 - y) * map.columns + (x - left); // lines of a picture begin at the top
        map.counts[place] = visits;
        map.cells[place] = visits ? Math.min(LEVELS, 1 + Math.round(Math.log(visits) * scale)) : 0;
      }
    }
    moved ? map.redraw() : this.paint(map);
  }

  // What is shown of the grid: all that any run on the same grid needs, so that maps side by side have the same scale.
  partOf(facts) {
    const grid = ({ bounds, columns, rows }) => JSON.stringify([bounds, columns, rows]);
    const parts = this.panels.map((map) => map.run.facts.map).filter((other) => grid(other) === grid(facts)).map((other) => other.part);
    return [0, 1].map((axis) => [Math.min(...parts.map((part) => part[axis][0])), Math.max(...parts.map((part) => part[axis][1]))]);
  }

  paint(map) {
    Object.assign(map.panel.canvas, { width: map.columns, height: map.rows });
    paintMap(this.group, map, 0);
  }

  read() {
    if (this.pointed) readCell(this.group, this.panels, this.pointed.map, 0, this.pointed.event);
  }
}

function momentText(step) {
  return `step ${numberText(step)}`;
}

function highest(counts) {
  return counts.reduce((most, count) => Math.max(most, count), 0);
}

// Curves: lines with bands, a legend that hides them, and a cursor that reads all of them at one x. Beside them a column
// of points for each line: where its seeds end. A line may bring the lines of its seeds, which stand for the band, and its
// own colour and dashes. `fromZero`: x begins at 0, and y where nothing is negative. `until`: x goes so far at least.

const COLUMN = 8; // pixels from one column of points to the next

// Returns a function that draws again what has become of the same lines.
function drawCurves(host, data) {
  const colours = data.series.map((series) => series.colour ?? DATA.colours[series.label]);
  const entries = data.series.map((series, i) => ({
    label: series.label, colour: seriesColour(colours[i]), dashes: series.dashes ?? seriesDashes(colours[i]),
  }));
  const hidden = legend(host, entries, () => redraw());
  const help = `${data.title}: ${data.yLabel} over ${data.xLabel}. Left and right arrow keys read the values.`;
  const chart = html("div", { class: "chart", tabindex: "0", role: "group", "aria-label": help }, host);
  const readout = html("div", { class: "readout", role: "status", hidden: true }, chart);
  const shown = () => data.series.map((series, i) => ({ ...series, entry: entries[i] })).filter((_, i) => !hidden.has(i));
  let axes = null;
  let stops = []; // every x that has a value
  let at = null; // which stop the cursor is on

  const redraw = drawWhenSized(chart, (width) => {
    const series = shown();
    stops = [...new Set(series.flatMap((line) => line.x))].sort((a, b) => a - b);
    const height = Math.round(Math.min(360, Math.max(230, width * 0.58)));
    const values = series.flatMap((line) => [line.middle, line.low, line.high, line.ends]);
    const ending = series.filter((line) => line.ends.length);
    const limits = [padded(range([stops]), 0.0), padded(range(values), 0.04)];
    if (range(values)[0] >= 0) limits[1][0] = Math.max(0, limits[1][0]); // no ticks below 0 for what cannot be negative
    if (data.fromZero) limits[0][0] = Math.min(0, limits[0][0]);
    if (data.until) limits[0][1] = Math.max(data.until, limits[0][1]);
    if (data.fromZero && range(values)[0] >= 0) limits[1][0] = 0;
    if (limits[0][0] === limits[0][1]) limits[0] = padded(limits[0], 0.1);
    const [low, high] = limits[1];
    if (data.counts && high - low < 2) limits[1] = [Math.floor(low), Math.ceil(high)]; // so there are whole numbers to write
    const whole = { x: stops.every(Number.isInteger), y: data.counts };
    axes = drawAxes(chart, { ...data, width, height, limits, label: data.title, whole, margin: 10 + COLUMN * ending.length });
    for (const line of series) (line.seeds ? drawSeeds : drawBand)(axes, line);
    for (const line of series) drawLine(axes, line);
    ending.forEach((line, column) => drawEnds(axes, line, column));
    axes.cursor = svg("g", { class: "cursor" }, axes.root);
    axes.width = width;
    moveTo(at === null ? null : Math.min(at, stops.length - 1));
  });

  function moveTo(stop) {
    at = stop !== null && stop >= 0 ? stop : null;
    axes.cursor.replaceChildren();
    readout.hidden = at === null;
    if (at === null) return;
    const x = stops[at];
    svg("line", { x1: axes.x(x), x2: axes.x(x), y1: axes.area.top, y2: axes.area.bottom }, axes.cursor);
    const read = shown().map((line) => ({ line, ...valueAt(line, x) }));
    read.sort((a, b) => (b.middle ?? -Infinity) - (a.middle ?? -Infinity)); // as they lie on the page
    for (const { line, middle } of read) {
      if (middle === null) continue;
      svg("circle", { cx: axes.x(x), cy: axes.y(middle), r: 3.5, style: `fill:${line.entry.colour}` }, axes.cursor);
    }
    fillReadout(readout, `${numberText(x)} ${data.xLabel}`, read);
    const share = axes.x(x) / axes.width;
    readout.style.left = share < 0.5 ? `calc(${100 * share}% + 12px)` : "auto";
    readout.style.right = share < 0.5 ? "auto" : `calc(${100 - 100 * share}% + 12px)`;
  }

  const follow = (event) => {
    const bounds = axes.root.getBoundingClientRect();
    const x = ((event.clientX - bounds.left) / bounds.width) * axes.width;
    let nearest = null;
    stops.forEach((stop, i) => {
      if (nearest === null || Math.abs(axes.x(stop) - x) < Math.abs(axes.x(stops[nearest]) - x)) nearest = i;
    });
    moveTo(nearest);
  };
  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  chart.addEventListener("pointerleave", () => moveTo(null));
  chart.addEventListener("blur", () => moveTo(null));
  chart.addEventListener("keydown", (event) => {
    const last = stops.length - 1;
    const target = {
      ArrowRight: Math.min(last, (at ?? -1) + 1), ArrowLeft: Math.max(0, (at ?? stops.length) - 1),
      Home: 0, End: last, Escape: null,
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    moveTo(target);
  });
  return redraw;
}

// Runs of points without a gap.
function pieces(line, ...names) {
  const found = [[]];
  line.x.forEach((x, i) => {
    const values = names.map((name) => line[name][i] ?? null);
    if (values.includes(null)) found.push([]);
    else found.at(-1).push([x, ...values]);
  });
  return found.filter((piece) => piece.length);
}

function drawBand(axes, line) {
  for (const piece of pieces(line, "low", "high")) {
    const upper = piece.map(([x, , high]) => `${axes.x(x).toFixed(1)},${axes.y(high).toFixed(1)}`);
    const lower = piece.map(([x, low]) => `${axes.x(x).toFixed(1)},${axes.y(low).toFixed(1)}`).reverse();
    svg("polygon", { class: "band", points: [...upper, ...lower].join(" "), style: `fill:${line.entry.colour}` }, axes.root);
  }
}

// A seed has no value where none of its episodes ended: its line goes on to the next.
function drawSeeds(axes, line) {
  for (const seed of line.seeds) {
    const known = line.x.map((x, i) => [x, seed[i] ?? null]).filter(([, value]) => value !== null);
    const points = known.map(([x, value]) => `${axes.x(x).toFixed(1)},${axes.y(value).toFixed(1)}`);
    svg("polyline", { class: "seed", points: points.join(" "), style: `stroke:${line.entry.colour}` }, axes.root);
  }
}

function drawLine(axes, line) {
  const style = `stroke:${line.entry.colour};fill:${line.entry.colour}`;
  for (const piece of pieces(line, "middle")) {
    const points = piece.map(([x, middle]) => `${axes.x(x).toFixed(1)},${axes.y(middle).toFixed(1)}`);
    if (points.length === 1) svg("circle", { cx: axes.x(piece[0][0]), cy: axes.y(piece[0][1]), r: 3, style }, axes.root);
    const attributes = { class: "line", points: points.join(" "), style, "data-label": line.label };
    svg("polyline", { ...attributes, "stroke-dasharray": line.entry.dashes }, axes.root);
  }
}

function drawEnds(axes, line, column) {
  const cx = axes.area.right + COLUMN * (column + 0.75);
  const style = `fill:${line.entry.colour}`;
  for (const value of line.ends) svg("circle", { class: "end", cx, cy: axes.y(value), r: 2.4, style }, axes.root);
}

// What a line says at x; between two of its points, what lies on the straight line between them.
function valueAt(line, x) {
  const after = line.x.findIndex((value) => value >= x);
  const nothing = { middle: null, low: null, high: null };
  if (after < 0) return nothing;
  const between = (list) => {
    const right = list[after] ?? null;
    if (line.x[after] === x) return right;
    const left = list[after - 1] ?? null;
    if (left === null || right === null) return null;
    return left + ((right - left) * (x - line.x[after - 1])) / (line.x[after] - line.x[after - 1]);
  };
  return { middle: between(line.middle), low: between(line.low), high: between(line.high) };
}

function fillReadout(readout, heading, read) {
  readout.replaceChildren();
  html("b", {}, readout, heading);
  const table = html("table", {}, readout);
  for (const { line, middle, low, high } of read) {
    const row = html("tr", {}, table);
    const name = html("th", { scope: "row" }, row);
    html("i", { class: "dot", style: `background:${line.entry.colour}` }, name);
    name.append(line.label);
    html("td", {}, row, numberText(middle, true));
    const band = low === null || high === null ? "" : `${numberText(low, true)} to ${numberText(high, true)}`;
    html("td", { class: "quiet" }, row, band);
  }
}

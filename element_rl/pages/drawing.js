// What all drawings share: elements, numbers as text, ticks, axes, legends, colours, packed data.

const SVG = "http://www.w3.org/2000/svg";
const darkScheme = matchMedia("(prefers-color-scheme: dark)");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const redraws = new Set(); // one function per drawing
let printing = false;

function made(element, attributes, parent, text) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== false) element.setAttribute(name, value);
  }
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function svg(tag, attributes = {}, parent = null, text = undefined) {
  return made(document.createElementNS(SVG, tag), attributes, parent, text);
}

function html(tag, attributes = {}, parent = null, text = undefined) {
  return made(document.createElement(tag), attributes, parent, text);
}

// Calls draw(width) now, whenever the host's width changes, and when colours change.
function drawWhenSized(host, draw) {
  let width = 0;
  const redraw = () => width > 0 && draw(width);
  redraws.add(redraw);
  new ResizeObserver(() => {
    const now = Math.floor(host.clientWidth);
    if (now !== width && !printing) {
      width = now;
      redraw();
    }
  }).observe(host);
  return redraw;
}

function isDark() {
  return darkScheme.matches && !printing;
}

// Colours of methods are CSS variables, which change with the scheme; -1 is grey.
function seriesVariable(index) {
  return index < 0 ? "--quiet" : `--series-${index % DATA.seriesColours}`;
}

function seriesColour(index) {
  return `var(${seriesVariable(index)})`;
}

// A canvas cannot use CSS variables: the value of one as it is now.
function resolved(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// A second round through the colours has other dashes.
function seriesDashes(index) {
  return index < 0 ? "6 4" : [null, "6 4", "2 3"][Math.floor(index / DATA.seriesColours) % 3];
}

function viridis(share) {
  const at = 6 * Math.round(255 * Math.min(1, Math.max(0, share)));
  return [0, 2, 4].map((byte) => parseInt(DATA.viridis.slice(at + byte, at + byte + 2), 16));
}

// Four digits, or all those before the point; `fixed` numbers keep zeros at their end, to stand below each other.
function numberText(value, fixed = false) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return powerText(value);
  const digits = size >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 4 };
  if (fixed && size < 1000 && !Number.isInteger(value)) digits.minimumSignificantDigits = 4;
  return value.toLocaleString("en", digits).replace("-", "−");
}

// 0.00023 as 2.3 × 10⁻⁴
function powerText(value) {
  const [digits, power] = value.toExponential(1).split("e");
  const raised = [...power.replace("+", "")].map((sign) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign] ?? "⁻").join("");
  return (digits === "1.0" ? "" : `${digits.replace(".0", "").replace("-", "−")} × `) + `10${raised}`;
}

// About `count` round numbers from low to high, `whole` ones for what is counted.
function ticks(low, high, count, whole = false) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const fits = (step) => step >= rough * 0.999 && (!whole || Number.isInteger(step));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find(fits) ?? (whole ? Math.ceil(rough) : 10 * power);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

// Ticks of one axis, all in the same unit and with the same decimals: 0, 0.5M, 1.0M.
function tickTexts(values) {
  const largest = Math.max(...values.map(Math.abs));
  const [unit, suffix] = largest >= 1e6 ? [1e6, "M"] : largest >= 1e4 ? [1e3, "k"] : [1, ""];
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) / unit : 1;
  let decimals = 0;
  while (decimals < 6 && Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) > 1e-6) decimals++;
  return values.map((value) => {
    if (Math.abs(value) < 1e-12) return "0";
    const text = (value / unit).toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    return text.replace("-", "−") + suffix;
  });
}

// Where the area of a drawing lies within its width and height.
function box(width, height, yTexts, margin = 10) {
  const widest = Math.max(0, ...yTexts.map((text) => text.length));
  return { left: 26 + 6.6 * widest, right: width - margin, top: 8, bottom: height - 40 };
}

// An SVG with grid, ticks and labels. Returns it and functions from values to pixels. Where the area must have an exact
// shape, its left edge is given. `whole`: which of x and y are counts. `margin`: what is free to the right, in pixels.
function drawAxes(host, { width, height, limits, xLabel, yLabel, grid = true, label = "", leftEdge = null, whole = {}, margin = 10 }) {
  const [[left, right], [low, high]] = limits;
  const yTicks = ticks(low, high, Math.min(8, Math.max(2, (height - 48) / 40)), whole.y);
  const yTexts = tickTexts(yTicks);
  const area = box(width, height, yTexts, margin);
  area.left = leftEdge ?? area.left;
  const x = (value) => area.left + ((value - left) / (right - left)) * (area.right - area.left);
  const y = (value) => area.bottom - ((value - low) / (high - low)) * (area.bottom - area.top);
  host.querySelector(":scope > svg")?.remove();
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, host);
  const xTicks = ticks(left, right, Math.min(8, Math.max(2, (area.right - area.left) / 50)), whole.x);
  const xTexts = tickTexts(xTicks);
  xTicks.forEach((value, i) => {
    if (grid) svg("line", { class: "gridline", x1: x(value), x2: x(value), y1: area.top, y2: area.bottom }, root);
    const place = Math.min(x(value), width - 3.3 * xTexts[i].length); // the last one may not stick out
    svg("text", { class: "tick", x: place, y: area.bottom + 15, "text-anchor": "middle" }, root, xTexts[i]);
  });
  yTicks.forEach((value, i) => {
    if (grid) svg("line", { class: "gridline", x1: area.left, x2: area.right, y1: y(value), y2: y(value) }, root);
    svg("text", { class: "tick", x: area.left - 6, y: y(value) + 4, "text-anchor": "end" }, root, yTexts[i]);
  });
  const middle = (area.top + area.bottom) / 2;
  svg("path", { class: "axis", d: `M${area.left},${area.top}V${area.bottom}H${area.right}` }, root);
  svg("text", { class: "label", x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle" }, root, xLabel);
  svg("text", { class: "label", transform: `translate(12,${middle}) rotate(-90)`, "text-anchor": "middle" }, root, yLabel);
  return { root, area, x, y };
}

// A canvas over the area of an SVG: in shares of the host, so that it shrinks with it.
function placeCanvas(canvas, area, width, height) {
  canvas.style.left = `${(100 * area.left) / width}%`;
  canvas.style.top = `${(100 * area.top) / height}%`;
  canvas.style.width = `${(100 * (area.right - area.left)) / width}%`;
  canvas.style.height = `${(100 * (area.bottom - area.top)) / height}%`;
}

// Buttons that show and hide entries: [{label, colour, dashes}]; toggled(hidden set) is called on each click.
function legend(host, entries, toggled, swatch = "line") {
  const hidden = new Set();
  const list = html("div", { class: "legend", role: "group", "aria-label": "Show or hide" }, host);
  entries.forEach((entry, index) => {
    const button = html("button", { type: "button", "aria-pressed": "true" }, list);
    const mark = svg("svg", { class: "swatch", viewBox: "0 0 18 10", "aria-hidden": "true" }, button);
    if (swatch === "line") {
      const style = `stroke:${entry.colour}`;
      svg("line", { x1: 0, x2: 18, y1: 5, y2: 5, style, "stroke-width": 3, "stroke-dasharray": entry.dashes }, mark);
    } else svg("circle", { cx: 9, cy: 5, r: 4.5, style: `fill:${entry.colour}` }, mark);
    html("span", {}, button, entry.label);
    button.addEventListener("click", () => {
      hidden.has(index) ? hidden.delete(index) : hidden.add(index);
      button.setAttribute("aria-pressed", String(!hidden.has(index)));
      toggled(hidden);
    });
  });
  return hidden;
}

// Bytes of deflated data in base64.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

function padded([low, high], share) {
  const span = high > low ? high - low : Math.abs(low) || 1;
  return [low - span * share, high + span * share];
}

// The smallest and largest of numbers, nulls left out.
function range(lists) {
  let [low, high] = [Infinity, -Infinity];
  for (const list of lists) {
    for (const value of list) {
      if (value === null) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : [0, 1];
}

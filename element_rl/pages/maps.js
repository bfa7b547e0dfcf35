// Maps: those of a group side by side, in the same colours, with one slider over training for all of them.

const WALL = 255;
const LEVELS = 254;

async function drawMaps(host, group) {
  const controls = html("div", { class: "controls" }, host);
  const places = html("div", { class: "panels" }, host);
  places.style.maxWidth = `${27 * group.maps.length}rem`; // few maps need not be huge
  const maps = await Promise.all(group.maps.map(async (map) => {
    const cells = new Uint8Array(await unpacked(map.cells));
    return { ...map, cells, panel: mapPanel(places, map) };
  }));
  let frame = group.frames.length - 1;

  const paint = () => maps.forEach((map) => paintMap(group, map, frame));
  if (group.frames.length > 1) addSlider(controls, group, (chosen) => { frame = chosen; paint(); });
  else html("output", {}, controls, group.frames[0] ?? "");
  addColourBar(controls, group, maps);
  for (const map of maps) {
    drawWhenSized(map.panel.area, (width) => { layMap(map, width); paintMap(group, map, frame); });
    const read = (event) => readCell(group, maps, map, frame, event);
    map.panel.area.addEventListener("pointermove", read);
    map.panel.area.addEventListener("pointerdown", read);
    map.panel.area.addEventListener("pointerleave", () => maps.forEach((other) => (other.panel.value.textContent = "")));
  }
}

function mapPanel(places, map) {
  const panel = html("div", { class: "panel" }, places);
  const heading = html("h4", {}, panel);
  if (Object.hasOwn(DATA.colours, map.title)) {
    html("i", { class: "dot", style: `background:${seriesColour(DATA.colours[map.title])}` }, heading);
  }
  heading.append(map.title);
  const area = html("div", { class: "area" }, panel);
  const canvas = html("canvas", { width: map.columns, height: map.rows, role: "img" }, area);
  const value = html("p", { class: "value" }, panel);
  return { area, canvas, value };
}

// Axes around a map: as high as its plane is, where one unit is as long on both axes.
function layMap(map, width) {
  const [[left, right], [low, high]] = map.limits;
  const inner = box(width, 0, [2, 4, 6, 8].flatMap((count) => tickTexts(ticks(low, high, count))));
  const share = map.equalScales ? (high - low) / (right - left) : 0.8;
  const height = Math.round((inner.right - inner.left) * share + 48);
  const described = { width, height, grid: false, label: `Axes of ${map.title}`, leftEdge: inner.left };
  const axes = drawAxes(map.panel.area, { ...map, ...described });
  placeCanvas(map.panel.canvas, axes.area, width, height);
  if (map.start) svg("circle", { class: "start", cx: axes.x(map.start[0]), cy: axes.y(map.start[1]), r: 4.5 }, axes.root);
}

// Many is dark on a light page and bright on a dark one.
function levelColour(level) {
  const share = (level - 1) / (LEVELS - 1);
  return viridis(isDark() ? 0.1 + 0.9 * share : 1 - share); // the darkest would vanish in the dark
}

function paintMap(group, map, frame) {
  const own = Math.min(frame, map.frames.length - 1);
  const size = map.columns * map.rows;
  const context = map.panel.canvas.getContext("2d");
  const picture = context.createImageData(map.columns, map.rows);
  const palette = Array.from({ length: 256 }, (_, level) => (level === WALL ? wallColour() : levelColour(level)));
  let filled = 0;
  for (let i = 0; i < size; i++) {
    const level = map.cells[own * size + i];
    if (level === 0) continue;
    filled += level !== WALL;
    picture.data.set(palette[level], 4 * i);
    picture.data[4 * i + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
  const label = `${map.title}, ${map.frames[own]}: ${group.valueLabel} in ${filled} of ${size} cells`;
  map.panel.canvas.setAttribute("aria-label", label);
  map.panel.value.textContent = map.frames[own] === group.frames[frame] ? "" : map.frames[own];
}

function wallColour() {
  return isDark() ? [92, 98, 104] : [176, 180, 184];
}

function addSlider(controls, group, chosen) {
  const last = group.frames.length - 1;
  const play = html("button", { type: "button", class: "play", "aria-label": "Play" }, controls, "▶");
  const named = { type: "range", min: 0, max: last, step: 1, value: last, "aria-label": `${group.title}: moment of training` };
  const slider = html("input", named, controls);
  const output = html("output", {}, controls);
  let timer = null;
  const show = (frame) => {
    slider.value = frame;
    slider.setAttribute("aria-valuetext", group.frames[frame]);
    output.textContent = group.frames[frame];
    chosen(frame);
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶";
    play.setAttribute("aria-label", "Play");
  };
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    let frame = Number(slider.value) === last ? 0 : Number(slider.value);
    show(frame);
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
    timer = setInterval(() => (frame < last ? show(++frame) : stop()), 700);
  });
  play.hidden = calm.matches;
  show(last);
}

// A strip of the colours with a few values below it, and what the other marks are. Returns a function that writes the values
// again.
function addColourBar(controls, group, maps) {
  const key = html("div", { class: "key" }, controls);
  const bar = html("div", { class: "bar" }, key);
  html("span", { class: "label" }, bar, group.valueLabel + (group.logarithmic ? " (log scale)" : ""));
  const canvas = html("canvas", { width: LEVELS, height: 1, "aria-hidden": "true" }, bar);
  const numbers = html("div", { class: "numbers" }, bar);
  const writeNumbers = () => {
    numbers.replaceChildren();
    for (const share of [0, 0.5, 1]) {
      html("span", {}, numbers, roundText(levelValue(group, 1 + share * (LEVELS - 1)), group.logarithmic ? 2 : 3));
    }
  };
  writeNumbers();
  if (maps.some((map) => map.start)) html("span", { class: "mark start-mark" }, key, "start");
  if (maps.some((map) => map.walls)) html("span", { class: "mark wall-mark" }, key, "wall");
  drawWhenSized(bar, () => {
    const context = canvas.getContext("2d");
    const picture = context.createImageData(LEVELS, 1);
    for (let level = 1; level <= LEVELS; level++) picture.data.set([...levelColour(level), 255], 4 * (level - 1));
    context.putImageData(picture, 0, 0);
  });
  return writeNumbers;
}

function levelValue(group, level) {
  const share = (level - 1) / (LEVELS - 1);
  if (!group.logarithmic) return group.low + share * (group.high - group.low);
  return Math.exp(Math.log(group.low) + share * (Math.log(group.high) - Math.log(group.low)));
}

// The cell under the pointer, read in every map of the group that has such a cell.
function readCell(group, maps, pointed, frame, event) {
  const bounds = pointed.panel.canvas.getBoundingClientRect();
  const column = Math.floor(((event.clientX - bounds.left) / bounds.width) * pointed.columns);
  const row = Math.floor(((event.clientY - bounds.top) / bounds.height) * pointed.rows);
  const inside = column >= 0 && row >= 0 && column < pointed.columns && row < pointed.rows;
  for (const map of maps) {
    const alike = map.columns === pointed.columns && map.rows === pointed.rows;
    map.panel.value.textContent = inside && alike ? cellText(group, map, frame, column, row) : "";
  }
}

function cellText(group, map, frame, column, row) {
  const own = Math.min(frame, map.frames.length - 1);
  const level = map.cells[(own * map.rows + row) * map.columns + column];
  const [x, y] = [[column + 0.5, map.columns], [map.rows - row - 0.5, map.rows]].map(([at, count], axis) => {
    const [low, high] = map.limits[axis];
    return roundText(low + (at / count) * (high - low), 3);
  });
  const counted = map.counts?.[row * map.columns + column]; // exactly, where it is known
  const known = counted === undefined ? () => roundText(levelValue(group, level), 2) : () => numberText(counted);
  const value = level === WALL ? "wall" : level === 0 ? "nothing" : known();
  return `(${x}, ${y}): ${value}`;
}

// A level stands for a range of values: digits beyond the first few would be made up.
function roundText(value, digits) {
  return numberText(Number(value.toPrecision(digits)));
}

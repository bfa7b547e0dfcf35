// Paths through a plane, coloured from early to late, and scattered points.

async function drawPaths(host, data) {
  const shares = data.groups.map((_, i) => i / Math.max(1, data.groups.length - 1));
  const groups = await Promise.all(data.groups.map(async (group) => ({ ...group, ways: await pathsOf(group, data) })));
  // Neither end of viridis may vanish into the page.
  const colour = (i) => `rgb(${viridis(isDark() ? 0.2 + 0.8 * shares[i] : 0.88 * shares[i])})`;
  const hidden = legend(host, groups.map((group, i) => ({ label: group.label, colour: `var(--path-${i})` })), () => redraw());
  if (data.start) html("span", { class: "mark start-mark" }, host.querySelector(".legend"), "start");
  const { chart, canvas } = plane(host);
  const limits = data.low.map((low, axis) => padded([low, low + data.span[axis]], 0.04));
  const redraw = drawWhenSized(chart, (width) => {
    groups.forEach((_, i) => host.style.setProperty(`--path-${i}`, colour(i)));
    const { axes, context } = layPlane(chart, canvas, data, width, limits);
    context.lineWidth = 1.1;
    context.lineJoin = "round";
    groups.forEach((group, i) => {
      if (hidden.has(i)) return;
      context.strokeStyle = colour(i);
      for (const way of group.ways) {
        context.beginPath();
        for (let k = 0; k < way.length; k += 2) context.lineTo(axes.x(way[k]), axes.y(way[k + 1]));
        context.stroke();
      }
    });
    if (data.start) drawStart(context, axes.x(data.start[0]), axes.y(data.start[1]));
  });
}

function drawStart(context, x, y) {
  context.beginPath();
  context.arc(x, y, 4.5, 0, 2 * Math.PI);
  context.fillStyle = resolved("--start");
  context.strokeStyle = resolved("--page");
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
}

// x, y, x, y, … of every path of a group.
async function pathsOf(group, data) {
  const steps = new Int16Array(await unpacked(group.points));
  let next = 0;
  return group.lengths.map((length) => {
    const way = new Float64Array(2 * length);
    const place = [0, 0];
    for (let k = 0; k < 2 * length; k++) {
      place[k % 2] += steps[next++];
      way[k] = data.low[k % 2] + (place[k % 2] / data.grid) * data.span[k % 2];
    }
    return way;
  });
}

function drawScatter(host, data) {
  const colours = data.groups.map((group) => DATA.colours[group.label]);
  const entries = data.groups.map((group, i) => ({ label: group.label, colour: seriesColour(colours[i]) }));
  const hidden = legend(host, entries, () => redraw(), "dot");
  const { chart, canvas } = plane(host);
  const redraw = drawWhenSized(chart, (width) => {
    const shown = data.groups.filter((_, i) => !hidden.has(i));
    let limits = [padded(range(shown.map((group) => group.x)), 0.04), padded(range(shown.map((group) => group.y)), 0.04)];
    if (data.diagonal) limits = [range(limits), range(limits)];
    const { axes, context } = layPlane(chart, canvas, { ...data, equalScales: false }, width, limits, data.diagonal ? 1 : 0.7);
    if (data.diagonal) {
      const [low, high] = limits[0];
      svg("line", { class: "diagonal", x1: axes.x(low), y1: axes.y(low), x2: axes.x(high), y2: axes.y(high) }, axes.root);
    }
    data.groups.forEach((group, i) => {
      if (hidden.has(i)) return;
      context.fillStyle = resolved(seriesVariable(colours[i]));
      context.globalAlpha = Math.max(0.25, Math.min(0.85, 12 / Math.sqrt(group.x.length)));
      group.x.forEach((x, k) => {
        if (x === null || group.y[k] === null) return;
        context.beginPath();
        context.arc(axes.x(x), axes.y(group.y[k]), 2.6, 0, 2 * Math.PI);
        context.fill();
      });
    });
  });
}

function plane(host) {
  const chart = html("div", { class: "chart" }, host);
  return { chart, canvas: html("canvas", { "aria-hidden": "true" }, chart) };
}

// Axes, and a canvas over their area whose coordinates are those of the SVG.
function layPlane(chart, canvas, data, width, limits, aspect = 0.72) {
  const area = box(width, 0, tickTexts(ticks(...padded(limits[1], 0.5), 8))); // wide enough for limits that grow
  const inner = area.right - area.left;
  const [spanX, spanY] = limits.map(([low, high]) => high - low);
  const share = data.equalScales ? Math.min(1, Math.max(0.45, spanY / spanX)) : aspect;
  const height = Math.round(Math.min(inner * share, 520) + 48);
  const fitted = data.equalScales ? fitEqually(limits, inner, height - 48) : limits;
  const axes = drawAxes(chart, { ...data, width, height, limits: fitted, label: data.title, leftEdge: area.left });
  placeCanvas(canvas, axes.area, width, height);
  const sharpness = Math.max(devicePixelRatio, 2);
  canvas.width = (axes.area.right - axes.area.left) * sharpness;
  canvas.height = (axes.area.bottom - axes.area.top) * sharpness;
  const context = canvas.getContext("2d");
  context.scale(sharpness, sharpness);
  context.translate(-axes.area.left, -axes.area.top);
  return { axes, context };
}

// Limits widened along one axis, so that one unit is as long on both.
function fitEqually(limits, width, height) {
  const spans = limits.map(([low, high]) => high - low);
  const unit = Math.max(spans[0] / width, spans[1] / height);
  return limits.map(([low, high], axis) => {
    const missing = (unit * [width, height][axis] - spans[axis]) / 2;
    return [low - missing, high + missing];
  });
}

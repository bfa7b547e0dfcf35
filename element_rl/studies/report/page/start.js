// Fills the places of the page, and draws again when colours change: another scheme, or paper.

const DATA = JSON.parse(document.getElementById("data").textContent);
const DRAW = { curves: drawCurves, maps: drawMaps, paths: drawPaths, scatters: drawScatter };

async function start() {
  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.querySelectorAll("button.copy").forEach(makeCopying);
  const places = [...document.querySelectorAll("figure[data-kind]")];
  await Promise.all(places.map(async (figure) => {
    const { kind, index } = figure.dataset;
    await DRAW[kind](figure.querySelector(".drawing"), DATA[kind][index]);
  }));
  document.documentElement.dataset.ready = "true";
}

const redrawAll = () => redraws.forEach((redraw) => redraw());
darkScheme.addEventListener("change", redrawAll);

let opened = []; // what was folded before printing
addEventListener("beforeprint", () => {
  printing = true;
  opened = [...document.querySelectorAll("section > details:not([open])")];
  opened.forEach((details) => (details.open = true));
  redrawAll();
});
addEventListener("afterprint", () => {
  printing = false;
  opened.forEach((details) => (details.open = false));
  redrawAll();
});

start();

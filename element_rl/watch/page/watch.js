// Asks for the state of the runs every second, fetches what has changed, and shows it.

const EVERY = 1000; // milliseconds
const EVERY_HIDDEN = 5000; // while nobody looks
const PATIENCE = 15000; // milliseconds to wait for an answer
const SHOWN_AT_FIRST = 6; // runs in the charts

const runs = []; // {index, facts, curves, shown, label, colour, card}
const environments = new Map(); // name → {section, charts, maps, signature}
let leftOut = 0;

async function tick() {
  const state = await asked("/state");
  try {
    if (state) await show(state);
  } catch (error) {
    console.error(error); // and go on: the next second may be better
  }
  connected(state !== null);
  document.documentElement.dataset.ready = "true";
  setTimeout(tick, document.hidden ? EVERY_HIDDEN : EVERY);
}

// What is said at an address; null where nobody answers, or not in time.
async function asked(address) {
  try {
    const answer = await fetch(address, { signal: AbortSignal.timeout(PATIENCE) });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

async function show(state) {
  leftOut = state.leftOut;
  state.runs.forEach(meet);
  nameRuns(runs);
  await Promise.all(runs.map(fetchCurves));
  showAll();
  await Promise.all([...environments.values()].map(({ maps, shown }) => maps.update(shown)));
}

function meet(facts, index) {
  if (!runs[index]) {
    const shown = facts.state === "running" || runs.filter((run) => run.shown).length < SHOWN_AT_FIRST;
    runs[index] = { index, shown, curves: noCurves(), card: null };
    runs[index].facts = facts;
    runs[index].card = new Card(document.getElementById("runs"), runs[index], showAll);
  }
  runs[index].facts = facts;
}

function noCurves() {
  return { generation: -1, version: -1, step: [], seeds: [], columns: {} };
}

// What has come since the last time. The last point may have changed too: lines are still falling into its bin.
async function fetchCurves(run) {
  const { curves, facts } = run;
  if (curves.generation === facts.generation && curves.version === facts.version) return;
  const first = Math.max(0, curves.step.length - 1);
  const found = await asked(`/curves?run=${run.index}&generation=${Math.max(0, curves.generation)}&first=${first}`);
  if (!found) return;
  if (found.generation !== curves.generation) run.curves = { ...noCurves(), generation: found.generation };
  const kept = run.curves;
  kept.version = facts.version;
  kept.seeds = found.seeds;
  splice(kept.step, found.first, found.step);
  for (const [name, column] of Object.entries(found.columns)) {
    const before = (kept.columns[name] ??= {});
    for (const [part, values] of Object.entries(column)) {
      if (part === "seeds") {
        before.seeds ??= values.map(() => []);
        values.forEach((line, seed) => splice(before.seeds[seed], found.first, line));
      } else splice((before[part] ??= []), found.first, values);
    }
  }
}

// Puts values where `first` is, and nothing before them where nothing was.
function splice(list, first, values) {
  while (list.length < first) list.push(null);
  list.length = first;
  list.push(...values);
}

function showAll() {
  for (const run of runs) run.card.update(runs.length > 1);
  const shown = runs.filter((run) => run.shown && (run.curves.step.length || run.facts.map));
  const wanted = new Set(shown.map((run) => run.facts.env));
  for (const [env, { section }] of environments) section.hidden = !wanted.has(env);
  for (const env of wanted) showEnvironment(env, shown.filter((run) => run.facts.env === env));
  for (const [env, environment] of environments) if (!wanted.has(env)) environment.shown = [];
  writeTitle();
}

function showEnvironment(env, shown) {
  if (!environments.has(env)) environments.set(env, makeEnvironment(env));
  const environment = environments.get(env);
  environment.shown = shown;
  environment.heading.hidden = environments.size < 2;
  environment.section.classList.toggle("single", shown.length < 2);
  const signature = JSON.stringify(shown.map((run) => [
    run.index, run.label, run.colour, run.curves.generation, run.curves.version, run.facts.random,
  ]));
  if (signature !== environment.signature) environment.charts.update(shown);
  environment.signature = signature;
  environment.more.hidden = !environment.more.querySelector("figure");
}

function makeEnvironment(env) {
  const section = html("section", {}, document.getElementById("environments"));
  const heading = html("h2", {}, section, env);
  const figures = html("div", { class: "figures" }, section);
  const maps = new LiveMaps(figures);
  const more = html("details", {}, section);
  html("summary", {}, more, "More curves");
  const charts = new Charts(figures, html("div", { class: "figures" }, more));
  return { section, heading, charts, maps, more, shown: [], signature: "" };
}

function writeTitle() {
  const number = runs.length;
  const title = number === 1 ? runs[0].facts.env : number ? `${number} runs` : "No run yet";
  document.getElementById("title").textContent = title;
  const [first] = runs;
  const share = number === 1 && first.facts.steps ? `${Math.floor((100 * first.facts.step) / first.facts.steps)} % · ` : "";
  const state = number === 1 && first.facts.state !== "running" ? `${STATES[first.facts.state]} · ` : share;
  document.title = `${state}${title} · element watch`;
}

let lastAnswer = null;
function connected(answered) {
  const line = document.getElementById("connection");
  const waiting = runs.length ? "" : " Runs appear here when they begin.";
  const older = leftOut ? ` ${countText(leftOut, "older run")} of the folder not shown: name those you want to see.` : "";
  if (answered) lastAnswer = new Date();
  const since = lastAnswer ? ` since ${lastAnswer.toLocaleTimeString()}` : "";
  const text = answered
    ? `Followed every second.${waiting}${older}`
    : `No answer from element watch${since}: is it still running? What you see is as of then.`;
  line.classList.toggle("lost", !answered);
  if (line.textContent !== text) line.textContent = text;
}

darkScheme.addEventListener("change", () => redraws.forEach((redraw) => redraw()));
tick();

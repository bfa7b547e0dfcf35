// Numbers and names as text.

const STATES = {
  running: "running", finished: "finished", stopped: "stopped", died: "died", unknown: "not known", gone: "gone",
  damaged: "damaged", reading: "reading …",
};

// 75 seconds as 1 min 15 s; of longer times the two largest parts.
function durationText(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = parts.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  const [unit, size] = parts[first];
  const rest = parts[first + 1];
  const more = rest ? Math.floor((whole % size) / rest[1]) : 0;
  return `${Math.floor(whole / size)} ${unit}${more ? ` ${more} ${rest[0]}` : ""}`;
}

function countText(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

// What stands along the axis of a column, and its title.
function axisText(column) {
  return DATA.quantities[column] ?? column.replaceAll("_", " ");
}

function titleText(column) {
  const text = axisText(column).split(" (")[0];
  return text[0].toUpperCase() + text.slice(1);
}

// Labels and colours of all runs, as `element plot` has them: those of one reward are alike in every environment; where
// one has several of a reward, the folder's name is said too.
function nameRuns(runs) {
  const turns = new Map();
  for (const run of runs) {
    const { env, reward } = run.facts;
    const key = JSON.stringify([env, reward]);
    run.turn = turns.get(key) ?? 0;
    turns.set(key, run.turn + 1);
  }
  const repeated = new Set(runs.filter((run) => run.turn).map((run) => run.facts.reward));
  const ranks = new Map();
  for (const run of runs) {
    const key = JSON.stringify([run.facts.reward, run.turn]);
    if (!ranks.has(key)) ranks.set(key, ranks.size);
    run.colour = ranks.get(key);
    run.label = repeated.has(run.facts.reward) ? `${run.facts.reward} (${run.facts.name})` : run.facts.reward;
  }
}

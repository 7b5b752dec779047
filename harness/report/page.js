"use strict";
// Tips on hovering or touching a mark of a figure, the filters of the take-aways, opening what a link leads to, and the explorer: modes of a table, its front, and a power budget.

const tip = document.getElementById("tip");

function showTip(text, event) {
  tip.textContent = text;
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - box.width - 6);
  const above = event.clientY + 18 + box.height > innerHeight;
  tip.style.left = Math.max(6, x) + "px";
  tip.style.top = (above ? event.clientY - box.height - 12 : event.clientY + 18) + "px";
}

function hideTip() { tip.style.display = "none"; }

function markUnder(event) {
  return event.target.closest ? event.target.closest(".panel [aria-roledescription][aria-label]") : null;
}

document.addEventListener("pointermove", event => {
  const mark = markUnder(event);
  if (mark && mark.hasAttribute("d")) showTip(mark.getAttribute("aria-label"), event);
  else if (!event.target.closest || !event.target.closest("#plot")) hideTip();
});
document.addEventListener("pointerdown", event => {
  const mark = markUnder(event);
  if (mark && mark.hasAttribute("d")) showTip(mark.getAttribute("aria-label"), event);
});
document.addEventListener("scroll", hideTip, { passive: true });
document.addEventListener("keydown", event => { if (event.key === "Escape") hideTip(); });

const RESOURCES = ["CPU cores", "CPU clock (MHz)", "GPU clock (MHz)", "memory clock (MHz)"];

function figureText(value) {
  const digits = value === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function modeText(table, place) {
  const [cores, cpu, gpu, mem] = table.mode[place];
  const mhz = khz => String(Math.round(khz / 100) / 10);
  const name = table.name[place];
  const full = `${cores} cores at ${mhz(cpu)} MHz, GPU ${mhz(gpu)} MHz, memory ${mhz(mem)} MHz`;
  return name.length < 20 && !/^\d+c-/.test(name) ? `${name}: ${full}` : full;
}

// Places of the points that no other one beats, the cheapest first.
function frontOf(times, costs) {
  const order = times.map((_, place) => place).sort((a, b) => costs[a] - costs[b] || times[a] - times[b]);
  let best = Infinity;
  return order.filter(place => times[place] < best && ((best = times[place]), true));
}

function niceTicks(low, high, about) {
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999);
  const found = [];
  for (let place = Math.ceil(low / step); place * step <= high * 1.0000001; place++) found.push(Number((place * step).toPrecision(10)));
  return found;
}

function logTicks(low, high) {
  for (const factors of [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= low && value <= high) found.push(Number(value.toPrecision(3)));
      }
    if (found.length <= 8) return found;
  }
  return [low, high];
}

function startExplorer(root, tables, ramp) {
  const pick = name => root.querySelector(`[name=${name}]`);
  const plot = root.querySelector("#plot"), said = root.querySelector("output"), note = root.querySelector("#note");
  let drawn = null;

  function rampColour(share) {
    return ramp[Math.min(ramp.length - 1, Math.floor(share * ramp.length))];
  }

  function draw() {
    const table = tables[pick("table").value], by = Number(pick("colour").value), cost = pick("cost").value;
    const narrow = root.clientWidth < 520;
    const width = narrow ? 380 : 900, height = narrow ? 360 : 420, left = 52, right = width - 12, top = 24, bottom = height - 40;
    const energy = cost === "energy";
    const costs = energy ? table.time_ms.map((time, place) => time * table.power_w[place] / 1000) : table.power_w;
    const low = Math.min(...costs), high = Math.max(...costs), room = (high - low) * 0.04 || 1;
    const slow = Math.max(...table.time_ms) * 1.12, fast = Math.min(...table.time_ms) / 1.12;
    const x = value => left + (value - low + room) / (high - low + 2 * room) * (right - left);
    const y = value => bottom - Math.log(value / fast) / Math.log(slow / fast) * (bottom - top);
    const parts = [];
    for (const value of niceTicks(low - room, high + room, narrow ? 5 : 9))
      parts.push(`<path d="M${x(value)},${top}V${bottom}" stroke="var(--grid)"/><text x="${x(value)}" y="${bottom + 16}" text-anchor="middle">${value}</text>`);
    for (const value of logTicks(fast, slow))
      parts.push(`<path d="M${left},${y(value)}H${right}" stroke="var(--grid)"/><text x="${left - 6}" y="${y(value) + 4}" text-anchor="end">${value}</text>`);
    parts.push(`<text x="${(left + right) / 2}" y="${height - 6}" text-anchor="middle">${energy ? "energy of a minibatch (J)" : "median power (W)"}</text>`);
    parts.push(`<text x="6" y="14">time of a minibatch (ms, logarithmic)</text>`);

    const values = table.mode.map(mode => mode[by]);
    const distinct = [...new Set(values)].sort((a, b) => a - b);
    const groups = new Map();
    values.forEach((value, place) => {
      const colour = distinct.length > 1 ? rampColour(distinct.indexOf(value) / (distinct.length - 1) * 0.999) : ramp[1];
      const dot = `M${x(costs[place]).toFixed(1)},${y(table.time_ms[place]).toFixed(1)}h0`;
      groups.set(colour, (groups.get(colour) || "") + dot);
    });
    const size = table.time_ms.length > 60 ? 4 : 9;
    groups.forEach((path, colour) => parts.push(`<path d="${path}" stroke="${colour}" stroke-width="${size}" stroke-linecap="round" fill="none"/>`));
    const front = frontOf(table.time_ms, costs);
    const steps = front.map((place, index) => index === 0 ? `M${x(costs[place])},${y(table.time_ms[place])}` : `H${x(costs[place])}V${y(table.time_ms[place])}`);
    parts.push(`<path id="front" d="${steps.join("")}" fill="none" stroke="var(--ink)" stroke-width="1.5"/>`);
    parts.push(`<g id="budget-mark"></g><circle id="hovered" r="6" fill="none" stroke="var(--ink)" stroke-width="2" visibility="hidden"/>`);
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    plot.innerHTML = parts.join("");
    plot.setAttribute("aria-label", `Time against ${cost} of ${table.title}, ${table.provenance}`);

    const span = by === 0 ? String : khz => String(Math.round(khz / 1000));
    const thinned = table.total > table.name.length ? ` ${table.name.length} of ${table.total} modes are drawn, evenly taken; all of the fronts are.` : "";
    root.querySelector("#scale-low").textContent = span(distinct[0]);
    root.querySelector("#scale-high").textContent = span(distinct[distinct.length - 1]);
    const badge = root.querySelector("#explorer-badge");
    badge.textContent = table.provenance;
    badge.className = "badge";
    badge.classList.add(table.provenance.replace(/[^a-z]/g, "") || "unknown");
    note.textContent = `Each point is a power mode; colour: ${RESOURCES[by]}; line: Pareto front.${thinned}`;
    drawn = { table, costs, x, y, energy, top, bottom };
  }

  function choose() {
    const { table, x, y, energy, top, bottom, costs } = drawn;
    const budget = Number(pick("budget").value);
    pick("budget").setAttribute("aria-valuetext", budget.toFixed(1) + " W");
    root.querySelector("#budget-value").textContent = budget.toFixed(1) + " W";
    let best = -1, fastest = 0;
    table.time_ms.forEach((time, place) => {
      if (time < table.time_ms[fastest]) fastest = place;
      if (table.power_w[place] <= budget && (best < 0 || time < table.time_ms[best])) best = place;
    });
    const mark = root.querySelector("#budget-mark");
    const line = energy ? "" : `<path d="M${x(budget)},${top}V${bottom}" stroke="var(--mark)" stroke-width="1.5" stroke-dasharray="5 3"/>`;
    if (best < 0) {
      mark.innerHTML = line;
      said.textContent = `No mode draws ${budget.toFixed(1)} W or less.`;
      return;
    }
    mark.innerHTML = line + `<circle cx="${x(costs[best])}" cy="${y(table.time_ms[best])}" r="7" fill="var(--mark)" stroke="var(--page)" stroke-width="2"/>`;
    const slower = (table.time_ms[best] / table.time_ms[fastest] - 1) * 100;
    const against = slower > 0.05 ? `${figureText(slower)} % slower than the fastest mode of all` : "the fastest mode of all";
    said.textContent = `Fastest within ${budget.toFixed(1)} W: ${modeText(table, best)}. ${figureText(table.time_ms[best])} ms a minibatch at ` +
      `${figureText(table.power_w[best])} W, ${against} (${table.provenance}).`;
    said.dataset.mode = table.mode[best].join("-");
  }

  function newTable() {
    const table = tables[pick("table").value], slider = pick("budget");
    slider.min = Math.floor(Math.min(...table.power_w) * 10) / 10;
    slider.max = Math.ceil(Math.max(...table.power_w) * 10) / 10;
    slider.value = (Number(slider.min) + Number(slider.max)) / 2;
    draw();
    choose();
  }

  function hover(event) {
    const { table, costs, x, y } = drawn, box = plot.getBoundingClientRect();
    const scale = plot.viewBox.baseVal.width / box.width;
    const atX = (event.clientX - box.left) * scale, atY = (event.clientY - box.top) * scale;
    let nearest = -1, least = (18 * scale) ** 2;
    table.time_ms.forEach((time, place) => {
      const distance = (x(costs[place]) - atX) ** 2 + (y(time) - atY) ** 2;
      if (distance < least) { least = distance; nearest = place; }
    });
    const ring = plot.querySelector("#hovered");
    ring.setAttribute("visibility", nearest < 0 ? "hidden" : "visible");
    if (nearest < 0) { hideTip(); return; }
    ring.setAttribute("cx", x(costs[nearest]));
    ring.setAttribute("cy", y(table.time_ms[nearest]));
    const joules = table.time_ms[nearest] * table.power_w[nearest] / 1000;
    showTip(`${modeText(table, nearest)}\n${figureText(table.time_ms[nearest])} ms, ${figureText(table.power_w[nearest])} W, ` +
      `${figureText(joules)} J a minibatch (${table.provenance})`, event);
  }

  pick("table").addEventListener("change", newTable);
  for (const name of ["colour", "cost"]) pick(name).addEventListener("change", () => { draw(); choose(); });
  pick("budget").addEventListener("input", choose);
  plot.addEventListener("pointermove", hover);
  plot.addEventListener("pointerdown", hover);
  plot.addEventListener("pointerleave", () => { hideTip(); plot.querySelector("#hovered").setAttribute("visibility", "hidden"); });
  let before = root.clientWidth < 520;
  addEventListener("resize", () => {
    if (root.clientWidth < 520 !== before) { before = !before; draw(); choose(); }
  });
  newTable();
}

const explorer = document.getElementById("explorer");
if (explorer) {
  startExplorer(explorer, JSON.parse(document.getElementById("explorer-data").textContent),
    JSON.parse(document.getElementById("ramp").textContent));
}

// A link may lead into what is folded.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();

const filters = document.getElementById("filters");
if (filters) {
  const claims = [...document.querySelectorAll("#claims article")];
  const filter = () => {
    const asked = name => filters.querySelector(`[name=${name}]`).value;
    const text = asked("text").toLowerCase();
    let count = 0;
    for (const claim of claims) {
      const fits = ["verdict", "paper", "device"].every(name => !asked(name) || claim.dataset[name] === asked(name));
      claim.hidden = !fits || !claim.textContent.toLowerCase().includes(text);
      count += !claim.hidden;
    }
    document.getElementById("shown").textContent = `${count} of ${claims.length}`;
  };
  filters.addEventListener("input", filter);
  filter();
}
addEventListener("beforeprint", () => document.querySelectorAll("details.more").forEach(one => { one.open = true; }));

"use strict";
// Tips on marks of figures, the explorer of power modes, sorting of tables, filters of the take-aways, opening what a link leads to.

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

const SETTINGS = ["CPU cores", "CPU clock (MHz)", "GPU clock (MHz)", "memory clock (MHz)"];
const FILTERS = ["cores", "cpu", "gpu", "mem"];

function figureText(value) {
  const digits = value === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// An element with attributes and children; texts become text nodes, whatever they hold.
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const clockText = khz => khz ? String(khz / 1000) : "x";
const settingText = (by, value) => by === 0 ? String(value) : clockText(value);
// As `nvpmodel-conf` and `--power-mode` take it.
const exactName = mode => [`${mode[0]}c`, ...mode.slice(1).map(clockText)].join("-");

// Places of the points that no other one beats, the cheapest first.
function frontOf(places, times, costs) {
  let best = Infinity;
  return [...places].sort((a, b) => costs[a] - costs[b] || times[a] - times[b])
    .filter(place => times[place] < best && ((best = times[place]), true));
}

function niceTicks(low, high, about) {
  const rough = (high - low) / about, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999);
  const ticks = [];
  for (let place = Math.ceil(low / step); place * step <= high * 1.0000001; place++) ticks.push(Number((place * step).toPrecision(10)));
  return ticks;
}

function logTicks(low, high) {
  for (const factors of [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= low && value <= high) ticks.push(Number(value.toPrecision(3)));
      }
    if (ticks.length > 2 && ticks.length <= 8) return ticks;
  }
  return niceTicks(low, high, 5);
}

function startExplorer(root, tables, ramp) {
  const pick = name => root.querySelector(`[name=${name}]`);
  const plot = root.querySelector("#plot"), dots = root.querySelector("#dots"), said = root.querySelector("output");
  const colourOf = name => getComputedStyle(root).getPropertyValue(name).trim();
  let view = null;  // what is drawn: table, places, costs and scales
  let zoom = null;  // least and greatest cost and time that are shown; null for all
  let picked = -1, pins = [];  // a place in the table; [table, place] of each

  for (const table of tables) {
    const alike = tables.filter(other => other.key && other.title === table.title).length;
    table.key = table.title + (alike ? ` (${alike + 1})` : "");
    table.energy_j = table.time_ms.map((time, place) => time * table.power_w[place] / 1000);
    table.places = new Map(table.mode.map((mode, place) => [exactName(mode), place]));
    table.describe = place => table.name[place] ? `${table.name[place]}: ${exactName(table.mode[place])}` : exactName(table.mode[place]);
    table.alike = tables.filter(other => ["device", "workload", "task", "batch_size"].every(name => other[name] === table[name]));
  }

  function fillFilters() {
    const table = tables[pick("table").value];
    FILTERS.forEach((name, by) => {
      const values = [...new Set(table.mode.map(mode => mode[by]))].sort((a, b) => a - b);
      pick(name).replaceChildren(make("option", { value: "" }, "all"), ...values.map(value => make("option", { value }, settingText(by, value))));
    });
    const slider = pick("budget");
    slider.min = Math.floor(Math.min(...table.power_w) * 10) / 10;
    slider.max = Math.ceil(Math.max(...table.power_w) * 10) / 10;
    slider.value = (Number(slider.min) + Number(slider.max)) / 2;
    zoom = null;
    picked = -1;
  }

  function draw() {
    const table = tables[pick("table").value], by = Number(pick("colour").value), cost = pick("cost").value;
    const narrow = root.clientWidth < 520, width = narrow ? 380 : 900, height = narrow ? 360 : 420;
    const left = 52, right = width - 12, top = 24, bottom = height - 40;
    const costs = cost === "energy" ? table.energy_j : table.power_w, times = table.time_ms;
    const asked = FILTERS.map(name => pick(name).value);
    const places = [...times.keys()].filter(place => asked.every((value, field) => !value || table.mode[place][field] === Number(value)));
    const of = (values, least, start) => places.reduce((extreme, place) => least(extreme, values[place]), start);
    const ends = [of(costs, Math.min, Infinity), of(costs, Math.max, 0), of(times, Math.min, Infinity), of(times, Math.max, 0)];
    const room = (ends[1] - ends[0]) * 0.04 || 1;
    const [low, high, fast, slow] = zoom || (places.length ? [ends[0] - room, ends[1] + room, ends[2] / 1.12, ends[3] * 1.12] : [0, 1, 1, 10]);
    const x = value => left + (value - low) / (high - low) * (right - left);
    const y = value => bottom - Math.log(value / fast) / Math.log(slow / fast) * (bottom - top);
    const inside = places.filter(place => costs[place] >= low && costs[place] <= high && times[place] >= fast && times[place] <= slow);

    // Dots on a canvas, which draws thousands of them within a frame; all else is SVG above it.
    const scale = devicePixelRatio || 1, pen = dots.getContext("2d");
    dots.width = width * scale;
    dots.height = height * scale;
    pen.scale(scale, scale);
    pen.strokeStyle = colourOf("--grid");
    pen.beginPath();
    const texts = [];
    for (const value of niceTicks(low, high, narrow ? 5 : 9)) {
      pen.moveTo(x(value), top); pen.lineTo(x(value), bottom);
      texts.push(`<text x="${x(value)}" y="${bottom + 16}" text-anchor="middle">${value}</text>`);
    }
    for (const value of logTicks(fast, slow)) {
      pen.moveTo(left, y(value)); pen.lineTo(right, y(value));
      texts.push(`<text x="${left - 6}" y="${y(value) + 4}" text-anchor="end">${value}</text>`);
    }
    pen.stroke();
    const dot = (source, place, size, at) => pen.fillRect(x(at[place]) - size / 2, y(source.time_ms[place]) - size / 2, size, size);
    const predicted = table.alike.find(other => other.origin === "predicted" && other !== table);
    pick("predicted").parentElement.hidden = !predicted;
    if (predicted && pick("predicted").checked) {
      const at = cost === "energy" ? predicted.energy_j : predicted.power_w;
      pen.fillStyle = colourOf("--grid");
      for (const place of predicted.time_ms.keys())
        if (at[place] >= low && at[place] <= high && predicted.time_ms[place] >= fast && predicted.time_ms[place] <= slow) dot(predicted, place, 3, at);
    }
    const distinct = [...new Set(table.mode.map(mode => mode[by]))].sort((a, b) => a - b);
    const colours = new Map(distinct.map((value, rank) => [value, ramp[distinct.length > 1 ? Math.floor(rank / (distinct.length - 1) * 0.999 * ramp.length) : 1]]));
    for (const place of inside) {
      pen.fillStyle = colours.get(table.mode[place][by]);
      dot(table, place, places.length > 400 ? 3 : places.length > 60 ? 4.5 : 8, costs);
    }

    const front = frontOf(places, times, costs);
    const steps = front.map((place, index) => index ? `H${x(costs[place])}V${y(times[place])}` : `M${x(costs[place])},${y(times[place])}`);
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    plot.innerHTML = `<clipPath id="within"><path d="M${left},${top}H${right}V${bottom}H${left}Z"/></clipPath>${texts.join("")}` +
      `<text x="${(left + right) / 2}" y="${height - 6}" text-anchor="middle">${cost === "energy" ? "energy of a minibatch (J)" : "median power (W)"}</text>` +
      `<text x="6" y="14">time of a minibatch (ms, logarithmic)</text>` +
      `<g clip-path="url(#within)"><path id="front" d="${steps.join("")}" fill="none" stroke="var(--ink)" stroke-width="1.5"/><g id="marks"></g><g id="budget-mark"></g></g>` +
      `<rect id="brush" fill="var(--mark)" opacity=".18" visibility="hidden"/><circle id="hovered" r="6" fill="none" stroke="var(--ink)" stroke-width="2" visibility="hidden"/>`;
    plot.setAttribute("aria-label", `Time against ${cost} of ${table.title}, ${table.provenance}. Arrow keys walk along the front, Enter pins.`);
    root.querySelector("#scale-low").textContent = settingText(by, distinct[0]);
    root.querySelector("#scale-high").textContent = settingText(by, distinct[distinct.length - 1]);
    const badge = root.querySelector("#explorer-badge");
    badge.textContent = table.provenance;
    badge.className = "badge";
    badge.classList.add(table.provenance.replace(/[^a-z]/g, "") || "unknown");
    const thinned = table.total > times.length ? ` ${times.length} of ${table.total} modes are here, evenly taken; all of the fronts are.` : "";
    root.querySelector("#note").textContent = `${inside.length.toLocaleString("en")} of ${times.length.toLocaleString("en")} modes; colour: ` +
      `${SETTINGS[by]}; line: Pareto front of ${places.length < times.length ? "those that the filters leave" : "all"}.${thinned}`;
    root.querySelector("#whole").hidden = !zoom;
    view = { table, by, places, inside, costs, front, x, y, left, right, top, bottom, low, high, fast, slow };
    drawMarks();
    choose();
  }

  // Rings of the picked and the pinned modes; with their intervals where they were predicted.
  function drawMarks() {
    const { table, costs, x, y } = view, energy = costs === table.energy_j;
    const ring = (place, colour) => {
      const [fast, slow, little, much] = table.low_high[place] || [];
      const cross = fast === undefined || energy ? "" :
        `<path d="M${x(costs[place])},${y(fast)}V${y(slow)}M${x(little / 1000)},${y(table.time_ms[place])}H${x(much / 1000)}" stroke="${colour}" stroke-width="1.5"/>`;
      return `${cross}<circle cx="${x(costs[place])}" cy="${y(table.time_ms[place])}" r="7" fill="none" stroke="${colour}" stroke-width="2.5"/>`;
    };
    const own = pins.filter(([number]) => tables[number] === table).map(([, place]) => ring(place, "var(--link)"));
    plot.querySelector("#marks").innerHTML = own.join("") + (picked >= 0 ? ring(picked, "var(--ink)") : "");
  }

  function choose() {
    const { table, x, y, top, bottom, costs, places } = view, budget = Number(pick("budget").value);
    pick("budget").setAttribute("aria-valuetext", budget.toFixed(1) + " W");
    root.querySelector("#budget-value").textContent = budget.toFixed(1) + " W";
    const faster = (best, place) => best < 0 || table.time_ms[place] < table.time_ms[best] ? place : best;
    const fastest = places.reduce(faster, -1), best = places.filter(place => table.power_w[place] <= budget).reduce(faster, -1);
    const line = costs === table.energy_j ? "" : `<path d="M${x(budget)},${top}V${bottom}" stroke="var(--mark)" stroke-width="1.5" stroke-dasharray="5 3"/>`;
    const mark = plot.querySelector("#budget-mark");
    if (best < 0) {
      mark.innerHTML = line;
      said.textContent = `No mode draws ${budget.toFixed(1)} W or less.`;
      return;
    }
    mark.innerHTML = line + `<circle cx="${x(costs[best])}" cy="${y(table.time_ms[best])}" r="7" fill="var(--mark)" stroke="var(--page)" stroke-width="2"/>`;
    const slower = (table.time_ms[best] / table.time_ms[fastest] - 1) * 100;
    const against = slower > 0.05 ? `${figureText(slower)} % slower than the fastest mode of all` : "the fastest mode of all";
    said.replaceChildren(`Fastest within ${budget.toFixed(1)} W: `, make("button", { type: "button", click: () => { picked = best; show(); } }, table.describe(best)),
      `, ${figureText(table.time_ms[best])} ms a minibatch at ${figureText(table.power_w[best])} W, ${against} (${table.provenance}).`);
    said.dataset.mode = table.mode[best].join("-");
  }

  // The picked mode: its figures in every table, commands, neighbours.
  function show() {
    drawMarks();
    const box = root.querySelector("#picked"), { table } = view;
    box.hidden = picked < 0;
    if (picked < 0) return;
    const mode = table.mode[picked], name = exactName(mode);
    const between = (figures, low, high) => low === undefined ? "" : ` (${figureText(figures(low))} to ${figureText(figures(high))})`;
    const rows = table.alike.filter(other => other.places.has(name)).map(other => {
      const place = other.places.get(name), [fast, slow, little, much] = other.low_high[place] || [];
      return make("tr", {}, ...[
        `${other.origin}, ${other.provenance}`,
        `${figureText(other.time_ms[place])} ms${between(Number, fast, slow)}`,
        `${figureText(other.power_w[place])} W${between(mw => mw / 1000, little, much)}`,
        `${figureText(other.energy_j[place])} J`, other.case[place] || "",
      ].map(text => make("td", {}, text)));
    });
    const intervals = table.alike.some(other => other.low_high.length) ? " In parentheses: 80 % of measurements are to lie within." : "";
    const word = text => /^[\w.+:,=@-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
    const commands = [
      `jetwatt nvpmodel-conf --power-mode ${name} --out custom.conf`,
      "jetwatt nvpmodel-conf --parse custom.conf   # prints the ID of the mode CUSTOM",
      "sudo nvpmodel -f custom.conf -m ID",
      `pytest benchmarks/test_${table.task}.py --workload ${word(table.workload)} --batch-size ${table.batch_size} --power-mode ${name}`,
    ];
    const change = (now, then) => `${then > now ? "+" : "\u2212"}${figureText(Math.abs(then / now - 1) * 100)} %`;
    const neighbours = mode.flatMap((value, field) => {
      const values = [...new Set(table.mode.map(one => one[field]))].sort((a, b) => a - b), rank = values.indexOf(value);
      return [values[rank - 1], values[rank + 1]].filter(other => other !== undefined).map(other => {
        const place = table.places.get(exactName(mode.map((one, at) => at === field ? other : one)));
        return place === undefined ? null : make("li", {}, make("button", { type: "button", click: () => { picked = place; show(); } },
          `${SETTINGS[field].replace(" (MHz)", "")} ${settingText(field, other)}`),
        ` time ${change(table.time_ms[picked], table.time_ms[place])}, power ${change(table.power_w[picked], table.power_w[place])}`);
      });
    }).filter(Boolean);
    const scales = SETTINGS.map((_, field) => table.mode.map(one => one[field])).map(values => Math.max(...values) - Math.min(...values) || 1);
    const far = place => table.mode[place].reduce((sum, value, field) => sum + Math.abs(value - mode[field]) / scales[field], 0);
    const nearest = neighbours.length ? [] : [...table.mode.keys()].sort((a, b) => far(a) - far(b)).slice(1, 5).map(place => make("li", {},
      make("button", { type: "button", click: () => { picked = place; show(); } }, table.describe(place)),
      ` time ${change(table.time_ms[picked], table.time_ms[place])}, power ${change(table.power_w[picked], table.power_w[place])}`));
    const heads = ["from", "time of a minibatch", "power", "energy", "profile"].map(text => make("th", {}, text));
    box.replaceChildren(
      make("h3", {}, make("code", {}, name), table.name[picked] ? ` ${table.name[picked]} ` : " ", make("button", { type: "button", click: pin }, "Pin")),
      make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)),
      make("p", { class: "muted" }, `${table.workload}, ${table.task}, batch size ${table.batch_size}, on ${table.device}.${intervals} On the board:`),
      make("pre", {}, commands.join("\n")),
      make("p", {}, neighbours.length ? "One step away:" : "No mode here is one step away; the nearest:"), make("ul", { class: "steps" }, ...neighbours, ...nearest));
    remember();
  }

  function pin() {
    const number = tables.indexOf(view.table);
    if (picked >= 0 && !pins.some(([one, place]) => one === number && place === picked)) pins.push([number, picked]);
    compare();
  }

  // Pinned modes side by side, each against the first.
  function compare() {
    const box = root.querySelector("#pinned");
    box.hidden = !pins.length;
    const rows = pins.map(([number, place], rank) => {
      const table = tables[number], [first, at] = pins[0];
      const against = (values, base) => rank ? `${figureText(values[place])} (${(values[place] / base[at]).toFixed(2)}x)` : figureText(values[place]);
      return make("tr", {}, ...[
        table.describe(place), table.title, against(table.time_ms, tables[first].time_ms), against(table.power_w, tables[first].power_w),
        against(table.energy_j, tables[first].energy_j), table.provenance,
      ].map(text => make("td", {}, text)), make("td", {}, make("button", { type: "button", "aria-label": "unpin", click: () => { pins.splice(rank, 1); compare(); } }, "\u00d7")));
    });
    box.querySelector("tbody").replaceChildren(...rows);
    drawMarks();
    remember();
  }

  // The view as the end of the address, and back.
  function remember() {
    const state = new URLSearchParams();
    state.set("table", view.table.key);
    for (const name of ["colour", "cost", "budget", ...FILTERS]) if (pick(name).value) state.set(name, pick(name).value);
    if (zoom) state.set("zoom", zoom.map(value => Number(value.toPrecision(5))).join(","));
    if (picked >= 0) state.set("mode", exactName(view.table.mode[picked]));
    for (const [number, place] of pins) state.append("pin", `${exactName(tables[number].mode[place])} ${tables[number].key}`);
    history.replaceState(null, "", `#explore?${state}`);
  }

  function recall() {
    const state = new URLSearchParams(location.hash.startsWith("#explore?") ? location.hash.slice(9) : "");
    const put = name => { if (state.has(name)) pick(name).value = state.get(name); };
    const numberOf = key => tables.findIndex(table => table.key === key);
    pick("table").value = String(Math.max(0, numberOf(state.get("table"))));
    fillFilters();
    ["colour", "cost", "budget", ...FILTERS].forEach(name => { put(name); if (pick(name).selectedIndex === -1) pick(name).selectedIndex = 0; });
    const ends = (state.get("zoom") || "").split(",").map(Number);
    if (ends.length === 4 && ends.every(Number.isFinite) && ends[0] < ends[1] && 0 < ends[2] && ends[2] < ends[3]) zoom = ends;
    const placeOf = (number, name) => tables[number] && tables[number].places.has(name) ? tables[number].places.get(name) : -1;
    picked = placeOf(pick("table").value, state.get("mode"));
    pins = state.getAll("pin").map(text => [text.split(" ")[0], numberOf(text.slice(text.indexOf(" ") + 1))])
      .map(([name, number]) => [number, placeOf(number, name)]).filter(([, place]) => place >= 0);
    draw();
    if (picked >= 0) show();
    if (pins.length) compare();
  }

  function placeOf(event) {
    const box = plot.getBoundingClientRect(), scale = plot.viewBox.baseVal.width / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale, near: 18 * scale };
  }

  function nearestTo(at) {
    const { table, costs, inside, x, y } = view;
    let nearest = -1, least = at.near ** 2;
    for (const place of inside) {
      const distance = (x(costs[place]) - at.x) ** 2 + (y(table.time_ms[place]) - at.y) ** 2;
      if (distance < least) { least = distance; nearest = place; }
    }
    return nearest;
  }

  function hover(event) {
    const { table, costs, x, y } = view, nearest = nearestTo(placeOf(event)), ring = plot.querySelector("#hovered");
    ring.setAttribute("visibility", nearest < 0 ? "hidden" : "visible");
    if (nearest < 0) { hideTip(); return; }
    ring.setAttribute("cx", x(costs[nearest]));
    ring.setAttribute("cy", y(table.time_ms[nearest]));
    const [cores, ...clocks] = table.mode[nearest], [cpu, gpu, mem] = clocks.map(clockText);
    showTip(`${table.describe(nearest)}\n${cores} cores at ${cpu} MHz, GPU ${gpu} MHz, memory ${mem} MHz\n${figureText(table.time_ms[nearest])} ms, ` +
      `${figureText(table.power_w[nearest])} W, ${figureText(table.energy_j[nearest])} J a minibatch (${table.provenance})`, event);
  }

  let start = null, brushed = null;  // where the pointer went down; the rectangle that it has drawn since
  plot.addEventListener("pointerdown", event => { start = placeOf(event); hover(event); });
  plot.addEventListener("pointermove", event => {
    const at = placeOf(event), within = (value, low, high) => Math.min(high, Math.max(low, value));
    if (!start || !event.buttons) { start = null; hover(event); return; }
    if (!brushed && Math.hypot(at.x - start.x, at.y - start.y) < 6) return;
    if (!brushed) { plot.setPointerCapture(event.pointerId); hideTip(); }
    const xs = [start.x, at.x].map(value => within(value, view.left, view.right)).sort((a, b) => a - b);
    const ys = [start.y, at.y].map(value => within(value, view.top, view.bottom)).sort((a, b) => a - b);
    brushed = [...xs, ...ys];
    const sides = { x: xs[0], y: ys[0], width: xs[1] - xs[0], height: ys[1] - ys[0], visibility: "visible" };
    for (const [name, value] of Object.entries(sides)) plot.querySelector("#brush").setAttribute(name, value);
  });
  plot.addEventListener("pointerup", event => {
    if (brushed && brushed[1] - brushed[0] > 4 && brushed[3] - brushed[2] > 4) {
      const { left, right, top, bottom, low, high, fast, slow } = view;
      const cost = value => low + (value - left) / (right - left) * (high - low);
      const time = value => fast * (slow / fast) ** ((bottom - value) / (bottom - top));
      zoom = [cost(brushed[0]), cost(brushed[1]), time(brushed[3]), time(brushed[2])];
      draw();
      remember();
    } else if (start) {
      const nearest = nearestTo(placeOf(event));
      if (nearest >= 0) { picked = nearest; show(); }
    }
    start = brushed = null;
    plot.querySelector("#brush").setAttribute("visibility", "hidden");
  });
  plot.addEventListener("pointercancel", () => { start = brushed = null; plot.querySelector("#brush").setAttribute("visibility", "hidden"); });
  plot.addEventListener("pointerleave", () => { hideTip(); plot.querySelector("#hovered").setAttribute("visibility", "hidden"); });
  plot.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (event.key === "Enter") pin();
    if (!step || !view.front.length) return;
    event.preventDefault();
    picked = view.front[Math.min(view.front.length - 1, Math.max(0, view.front.indexOf(picked) + step))];
    show();
  });
  const whole = () => { zoom = null; draw(); remember(); };
  plot.addEventListener("dblclick", whole);
  root.querySelector("#whole").addEventListener("click", whole);
  pick("table").addEventListener("change", () => { fillFilters(); draw(); show(); remember(); });
  for (const name of ["colour", "cost", "predicted", ...FILTERS])
    pick(name).addEventListener("change", () => { if (name === "cost" || FILTERS.includes(name)) zoom = null; draw(); remember(); });
  pick("budget").addEventListener("input", choose);
  pick("budget").addEventListener("change", remember);
  pick("device").addEventListener("change", () => {
    const options = [...pick("table").options], fits = option => !pick("device").value || tables[option.value].device === pick("device").value;
    for (const option of options) option.hidden = option.disabled = !fits(option);
    if (pick("table").selectedOptions[0].disabled) {
      pick("table").value = options.find(fits).value;
      pick("table").dispatchEvent(new Event("change"));
    }
  });
  let before = root.clientWidth < 520;
  addEventListener("resize", () => { if (root.clientWidth < 520 !== before) { before = !before; draw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("hashchange", () => { if (location.hash.startsWith("#explore?")) recall(); });
  recall();
}

const explorer = document.getElementById("explorer");
if (explorer) {
  startExplorer(explorer, JSON.parse(document.getElementById("explorer-data").textContent),
    JSON.parse(document.getElementById("ramp").textContent));
}

// Tables: a click on a heading sorts by it, the button below saves what is shown. Text that a spreadsheet would take for a
// formula gets an apostrophe.
const isPhone = matchMedia("(max-width: 600px)");
function equip(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const cell = (row, column) => row.cells[column].textContent.trim();
  const number = text => text === "" ? -Infinity : Number(text.replace(/,/g, ""));
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach(one => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
      const rows = [...body.rows], numeric = rows.every(row => !Number.isNaN(number(cell(row, column))));
      rows.sort((a, b) => down * (numeric ? number(cell(a, column)) - number(cell(b, column)) : cell(a, column).localeCompare(cell(b, column), "en", { numeric: true })));
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
  const label = () => {
    if (isPhone.matches) for (const row of body.rows) [...row.cells].forEach((one, column) => { one.dataset.label = heads[column].textContent; });
  };
  isPhone.addEventListener("change", label);
  label();
  table.after(make("button", { type: "button", class: "export", click: () => {
    const tame = text => /^[=+\-@]/.test(text) && Number.isNaN(number(text)) ? `'${text}` : text;
    const quoted = text => /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    const shown = [...table.rows].filter(row => !row.hidden);
    const text = shown.map(row => [...row.cells].map(one => quoted(tame(one.textContent.trim()))).join(",")).join("\n");
    make("a", { href: "data:text/csv;charset=utf-8," + encodeURIComponent(text + "\n"), download: "table.csv" }).click();
  } }, "Save as CSV"));
}
document.querySelectorAll("table.data").forEach(equip);

// Folded figures and tables are texts until they are unfolded: the page opens in half the time.
function drawUnfolded() {
  for (const folded of document.querySelectorAll("script.folded")) {
    if (folded.closest("details:not([open])")) continue;
    folded.insertAdjacentHTML("afterend", folded.textContent);
    if (folded.nextElementSibling.matches("table.data")) equip(folded.nextElementSibling);
    folded.remove();
  }
}
document.addEventListener("toggle", drawUnfolded, true);

// A link may lead into what is folded.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1).split("?")[0]));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  drawUnfolded();
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();

const filters = document.getElementById("filters");
if (filters) {
  const claims = [...document.querySelectorAll("#claims tbody tr")];
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

// On paper there is nothing to click: figures and take-aways are unfolded, tables and files stay folded and are named.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details.drawn:not([open])")];
  for (const one of unfolded) one.open = true;
  drawUnfolded();
});
addEventListener("afterprint", () => { for (const one of unfolded) one.open = false; });

"use strict";
// Every text goes through textContent or setAttribute: nothing that a rollout holds can become markup.

const BLOCKS = ["outside", "think", "search", "information", "answer"];
const SOURCES = ["policy", "engine", "template"];
const rollouts = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null).map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

const number = (value, digits = 2) => (typeof value === "number" ? String(Number(value.toFixed(digits))) : "–");

// ---- the list

rollouts.forEach((rollout, index) => {
  rollout.index = index;
  rollout.em = rollout.parts.em;
  rollout.format = rollout.parts.format;
  rollout.gold = rollout.answers.join(" | ");
  rollout.searched = rollout.searches.length;
  rollout.length = rollout.text.length;
  rollout.haystack = [rollout.question, rollout.answer ?? "", rollout.gold].join("\n").toLowerCase();
});

const sorting = { key: null, sign: 1 };
let shown = rollouts;
let current = -1;

function rowOf(rollout) {
  const mark = typeof rollout.em === "number" ? (rollout.em > 0 ? " good" : " bad") : "";
  const cell = (text, name = "") => make("td", { class: name, title: text }, text);
  const row = make("tr", { "data-index": rollout.index, onclick: () => open(rollout.index) },
    cell(rollout.step, "num"), cell(rollout.split), cell(rollout.question, "wide"), cell(rollout.answer ?? "–", "wide" + mark),
    cell(rollout.gold, "wide"), cell(number(rollout.reward), "num"), cell(number(rollout.em), "num" + mark), cell(number(rollout.format), "num"),
    cell(rollout.searched, "num"), cell(rollout.length, "num"), cell(rollout.status));
  if (rollout.index === current) row.classList.add("on");
  return row;
}

function refresh() {
  const text = byId("filter-text").value.trim().toLowerCase();
  const split = byId("filter-split").value;
  const step = byId("filter-step").value;
  const right = byId("filter-right").value;
  shown = rollouts.filter((rollout) =>
    (!text || rollout.haystack.includes(text)) && (!split || rollout.split === split) && (!step || rollout.step === Number(step)) &&
    (!right || (right === "right") === (rollout.em > 0)));
  if (sorting.key) {
    const value = (rollout) => rollout[sorting.key] ?? (sorting.sign > 0 ? Infinity : -Infinity);
    shown = [...shown].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return sorting.sign * (typeof x === "string" && typeof y === "string" ? x.localeCompare(y) : x < y ? -1 : x > y ? 1 : 0) || a.index - b.index;
    });
  }
  document.querySelector("#list tbody").replaceChildren(...shown.map(rowOf));
  document.querySelector(".list").scrollTop = 0;
  byId("shown").textContent = `${shown.length} of ${rollouts.length}`;
}

function choices(select, label, values) {
  select.replaceChildren(make("option", { value: "" }, label), ...values.map((value) => make("option", { value }, value)));
}

function startList() {
  choices(byId("filter-split"), "all splits", [...new Set(rollouts.map((rollout) => rollout.split))].sort());
  choices(byId("filter-step"), "all steps", [...new Set(rollouts.map((rollout) => rollout.step))].sort((a, b) => a - b));
  for (const id of ["filter-text", "filter-split", "filter-step", "filter-right"]) byId(id).addEventListener("input", refresh);
  for (const head of document.querySelectorAll("#list th")) {
    head.addEventListener("click", () => {
      sorting.sign = sorting.key === head.dataset.key ? -sorting.sign : 1;
      sorting.key = head.dataset.key;
      for (const other of document.querySelectorAll("#list th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sorting.sign > 0 ? "ascending" : "descending");
      refresh();
    });
  }
  refresh();
}

// ---- one rollout

function spans(rollout) {
  // runs of tokens with the same block; within them, one span a token
  const runs = [];
  rollout.text.forEach((text, index) => {
    const block = BLOCKS[rollout.block[index]];
    const last = runs[runs.length - 1];
    if (!last || last.block !== block) runs.push({ block, indices: [index] });
    else last.indices.push(index);
  });
  return runs;
}

function tokenSpan(rollout, index, blank) {
  const source = SOURCES[rollout.source[index]];
  const trained = rollout.trained[index] === "1";
  const logprob = rollout.logprob[index];
  const shownText = blank ? rollout.text[index].replace(/\n/g, "↵").replace(/ /g, "·").replace(/\t/g, "→") : rollout.text[index];
  const title = `token ${index}, turn ${parseInt(rollout.turn[index], 36)}, ${source}, ${trained ? "trained" : "not trained"}` +
    (logprob === null ? "" : `, log-probability ${logprob}`) + `\n${JSON.stringify(rollout.text[index])}`;
  const span = make("span", { class: `token ${source}${trained ? "" : " untrained"}`, title }, shownText);
  if (logprob !== null) span.style.setProperty("--p", Math.min(0.75, -logprob / 5).toFixed(2));
  return span;
}

function blockOf(rollout, run) {
  const writers = [...new Set(run.indices.map((index) => SOURCES[rollout.source[index]]))];
  const blank = run.block === "outside" && run.indices.every((index) => !rollout.text[index].trim());
  const who = make("div", { class: "who" });
  if (!blank) who.append(make("b", {}, run.block), writers.length === 1 && writers[0] === "policy" ? "" : writers.join(" + "));
  return make("div", { class: `block ${run.block}${blank ? " blank" : ""}` }, who,
    make("div", { class: "what" }, ...run.indices.map((index) => tokenSpan(rollout, index, blank))));
}

function searchOf(search) {
  const result = search.result;
  const box = make("div", { class: "find" }, make("q", {}, search.query));
  if (!result) {
    box.append(make("p", {}, "no engine answered: the policy wrote the information itself"));
    return box;
  }
  box.append(make("p", {}, `${result.status}, ${result.documents.length} document${result.documents.length === 1 ? "" : "s"}, ${result.cached ? "from the cache" : number(result.latency_s) + " s"}`));
  if (result.error) box.append(make("p", { class: "bad" }, result.error));
  for (const item of result.documents) {
    box.append(make("details", {}, make("summary", {}, item.title || item.id || "document",
      item.score === null ? "" : ` (${number(item.score)})`), item.text));
  }
  return box;
}

function fact(label, value) {
  return make("span", {}, label + " ", make("b", {}, value));
}

function open(index, scroll = false, remember = true) {
  const rollout = rollouts[index];
  if (!rollout) return;
  current = index;
  for (const row of document.querySelectorAll("#list tr.on")) row.classList.remove("on");
  const row = document.querySelector(`#list tr[data-index="${index}"]`);
  if (row) {
    row.classList.add("on");
    const list = document.querySelector(".list");
    const top = row.offsetTop - 34;
    if (top < list.scrollTop || top + 64 > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 3;
  }
  byId("view").hidden = false;
  byId("view-question").textContent = rollout.question;
  byId("view-facts").replaceChildren(
    fact("answer", rollout.answer ?? "none"), fact("gold", rollout.gold), fact("step", rollout.step), fact("split", rollout.split),
    fact("sample", rollout.sample), fact("status", rollout.status), fact("tokens", `${rollout.prompt_tokens} + ${rollout.length}`));
  byId("text").replaceChildren(...spans(rollout).map((run) => blockOf(rollout, run)));
  const parts = [...Object.entries(rollout.parts), ["reward", rollout.reward], ["advantage", rollout.advantage]];
  byId("parts").replaceChildren(...parts.map(([name, value]) => make("tr", {}, make("td", {}, name), make("td", { class: "num" }, number(value, 3)))));
  byId("searches").replaceChildren(...(rollout.searches.length ? rollout.searches.map(searchOf) : [make("p", { class: "soft" }, "none")]));
  const siblings = rollouts.filter((other) => other.group === rollout.group && other.step === rollout.step && other.split === rollout.split);
  byId("siblings").replaceChildren(...siblings.map((other) =>
    make("button", { class: other === rollout ? "on" : "", title: other.answer ?? "no answer", onclick: () => open(other.index) }, number(other.reward))));
  if (remember) history.replaceState(null, "", `#rollout-${index}`);
  if (scroll) byId("rollouts").scrollIntoView();
}

function startView() {
  const legend = BLOCKS.slice(1).concat("outside").map((name) => make("span", { class: name }, name));
  legend.push(make("span", { class: "untrained" }, "not trained"), make("span", { class: "engine" }, "engine"), make("span", { class: "template" }, "template"));
  byId("legend").replaceChildren(...legend);
  for (const name of ["tokens", "surprise"]) {
    const box = byId(`toggle-${name}`);
    const apply = () => byId("text").classList.toggle(name, box.checked);
    box.addEventListener("change", apply);
    apply(); // browsers restore a ticked box when a page is loaded again
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const move = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (!move || !shown.length || (event.key.startsWith("Arrow") && current < 0)) return;
    event.preventDefault();
    const place = shown.findIndex((rollout) => rollout.index === current);
    open(shown[Math.max(0, Math.min(shown.length - 1, place + move))].index);
  });
  const fromAddress = () => {
    const match = /^#rollout-(\d+)$/.exec(location.hash);
    if (match && Number(match[1]) !== current) open(Number(match[1]), true);
  };
  window.addEventListener("hashchange", fromAddress);
  fromAddress();
  if (current < 0) open(0, false, false);
}

// ---- values under the pointer, for all plots at once

function startCharts() {
  const charts = [...document.querySelectorAll(".chart")].map((figure) => ({
    figure, svg: figure.querySelector(":scope > svg"), outputs: [...figure.querySelectorAll("output")], ...JSON.parse(figure.dataset.chart),
  }));
  const show = (step) => {
    for (const chart of charts) {
      let line = chart.svg.querySelector(".cursor");
      if (step === null) line?.remove();
      chart.series.forEach((points, index) => {
        const known = step === null ? points[points.length - 1] : points.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best));
        chart.outputs[index].textContent = (step === null ? "" : `${known[0]}: `) + Number(known[1].toPrecision(3));
      });
      if (step === null || step < chart.x[0] || step > chart.x[1]) continue;
      if (!line) {
        line = document.createElementNS("http://www.w3.org/2000/svg", "path");
        line.setAttribute("class", "cursor");
        chart.svg.append(line);
      }
      const [left, top, right, bottom] = chart.box;
      const x = left + ((step - chart.x[0]) / (chart.x[1] - chart.x[0])) * (right - left);
      line.setAttribute("d", `M${x} ${top}V${bottom}`);
    }
  };
  for (const chart of charts) {
    chart.svg.addEventListener("pointermove", (event) => {
      const area = chart.svg.getBoundingClientRect();
      const [left, , right] = chart.box;
      const across = ((event.clientX - area.left) / area.width * chart.width - left) / (right - left);
      show(Math.round(chart.x[0] + Math.max(0, Math.min(1, across)) * (chart.x[1] - chart.x[0])));
    });
    chart.svg.addEventListener("pointerleave", () => show(null));
  }
  show(null);
}

startCharts();
startList();
startView();

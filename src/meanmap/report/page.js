"use strict";
// Charts that answer to the mouse and the keyboard, a filter of experiments, buttons that copy.

(() => {
  const SVG = "http" + "://www.w3.org/2000/svg"; // a name, not an address: nothing is loaded
  const NEAR = 36; // pixels from the mouse within which a point is found
  const SMALLEST = 1 / 40; // of the width, that zooming goes down to

  const byId = (id) => document.getElementById(id);
  const shown = (value) =>
    typeof value === "number" ? String(Number(value.toPrecision(4))) : String(value);

  function words(series, point) {
    const [x, y, remark] = point.v;
    const lines = series.label ? [series.label] : [];
    for (const [name, value, letter] of [[series.axes[0], x, "x"], [series.axes[1], y, "y"]]) {
      if (value !== "") lines.push(`${name || letter}: ${shown(value)}`);
    }
    return remark ? [...lines, remark] : lines;
  }

  function start(chart) {
    const { size, series } = JSON.parse(
      chart.querySelector('script[type="application/json"]').textContent,
    );
    const canvas = chart.querySelector(".canvas");
    const svg = canvas.querySelector("svg");
    const live = chart.querySelector("[aria-live]");
    const hidden = new Set(); // labels that are switched off
    const view = { x: 0, y: 0, w: size[0], h: size[1] };
    let at = null; // [series, point] that is shown, by their places in the lists

    // the browser's own tooltip of a title would stand in the way
    const title = svg.querySelector("title");
    svg.setAttribute("aria-label", title.textContent);
    svg.removeAttribute("aria-labelledby");
    svg.setAttribute("aria-describedby", svg.querySelector("desc").id);
    title.remove();

    const tip = document.createElement("div");
    tip.className = "tip";
    tip.setAttribute("aria-hidden", "true");
    tip.hidden = true;
    canvas.append(tip);
    const spot = document.createElementNS(SVG, "circle");
    spot.setAttribute("class", "spot");
    spot.style.display = "none";
    svg.append(spot);

    canvas.tabIndex = 0;
    canvas.setAttribute("role", "group");
    canvas.setAttribute("aria-label", "Chart: arrow keys step through its points, + and - zoom");
    chart.querySelector(".controls").hidden = false;

    // --- points

    const usable = (s) => s.points.length > 0 && !hidden.has(s.label);
    const inView = ([x, y]) =>
      x >= view.x && x <= view.x + view.w && y >= view.y && y <= view.y + view.h;

    function hide() {
      tip.hidden = true;
      spot.style.display = "none";
      at = null;
    }

    function show(i, j, aloud) {
      at = [i, j];
      const point = series[i].points[j];
      const [x, y] = point.p;
      if (aloud && !inView(point.p)) zoomTo(x - view.w / 2, y - view.h / 2, view.w, true);
      const lines = words(series[i], point);
      tip.textContent = lines.join("\n");
      tip.hidden = false;
      spot.style.display = "";
      spot.setAttribute("cx", x);
      spot.setAttribute("cy", y);
      spot.setAttribute("r", (5 * view.w) / size[0]);
      const box = svg.getBoundingClientRect();
      const frame = canvas.getBoundingClientRect();
      const left = box.left - frame.left + ((x - view.x) / view.w) * box.width;
      const top = ((y - view.y) / view.h) * box.height;
      const room = canvas.clientWidth - tip.offsetWidth - 4;
      const beside = left + 12 <= room ? left + 12 : left - tip.offsetWidth - 12;
      tip.style.left = `${Math.max(4, Math.min(beside, room)) + canvas.scrollLeft}px`;
      const above = top - tip.offsetHeight - 8;
      tip.style.top = `${above >= 2 ? above : Math.min(top + 12, box.height - tip.offsetHeight)}px`;
      if (aloud) live.textContent = lines.join(", ");
    }

    function nearest(x, y) {
      const scale = svg.getBoundingClientRect().width / view.w; // pixels a unit
      let best = null;
      let least = NEAR;
      series.forEach((s, i) => {
        if (!usable(s)) return;
        s.points.forEach((point, j) => {
          let [dx, dy] = [point.p[0] - x, point.p[1] - y];
          if (point.b) {
            const [x0, y0, x1, y1] = point.b;
            [dx, dy] = [Math.max(x0 - x, 0, x - x1), Math.max(y0 - y, 0, y - y1)];
            // points that lie on bars and cells come first
            if (dx === 0 && dy === 0) dx = (NEAR * 0.3) / scale;
          }
          const distance = Math.hypot(dx, dy) * scale;
          if (distance < least) [best, least] = [[i, j], distance];
        });
      });
      return best;
    }

    function step(series_, point_) {
      const lists = series.map((s, i) => [s, i]).filter(([s]) => usable(s)).map(([, i]) => i);
      if (!lists.length) return;
      if (at === null || !lists.includes(at[0])) return show(lists[0], 0, true);
      const [i, j] = at;
      const list = lists[(lists.indexOf(i) + series_ + lists.length) % lists.length];
      const n = series[list].points.length;
      const next = series_ ? Math.min(j, n - 1) : (j + point_ + n) % n;
      show(list, next, true);
    }

    // --- zoom

    function zoomTo(x, y, w, keep = false) {
      view.w = Math.min(size[0], Math.max(size[0] * SMALLEST, w));
      view.h = (view.w * size[1]) / size[0];
      view.x = Math.min(Math.max(0, x), size[0] - view.w);
      view.y = Math.min(Math.max(0, y), size[1] - view.h);
      svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.w} ${view.h}`);
      canvas.classList.toggle("zoomed", view.w < size[0]);
      if (!keep) hide();
    }

    function zoom(factor, x = view.x + view.w / 2, y = view.y + view.h / 2) {
      const w = Math.min(size[0], Math.max(size[0] * SMALLEST, view.w * factor));
      zoomTo(x - ((x - view.x) * w) / view.w, y - ((y - view.y) * w) / view.w, w);
    }

    function reset() {
      zoomTo(0, 0, size[0]);
      svg.setAttribute("viewBox", `0 0 ${size[0]} ${size[1]}`);
    }

    function units(event) {
      const box = svg.getBoundingClientRect();
      return [
        view.x + ((event.clientX - box.left) / box.width) * view.w,
        view.y + ((event.clientY - box.top) / box.height) * view.h,
      ];
    }

    // --- what people do

    let held = null; // where a drag began
    const point = (event) => {
      const found = nearest(...units(event));
      if (found) show(...found, false);
      else hide();
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse") point(event);
      if (view.w >= size[0] || event.button !== 0) return;
      held = { x: event.clientX, y: event.clientY, from: { ...view } };
      canvas.setPointerCapture(event.pointerId);
    });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => { held = null; });
    }
    canvas.addEventListener("pointermove", (event) => {
      if (held) {
        const scale = view.w / svg.getBoundingClientRect().width;
        const { x, y, from } = held;
        zoomTo(from.x - (event.clientX - x) * scale, from.y - (event.clientY - y) * scale, view.w);
        return;
      }
      point(event);
    });
    canvas.addEventListener("pointerleave", (event) => {
      if (!held && event.pointerType === "mouse") hide(); // a finger leaves at once
    });
    canvas.addEventListener("wheel", (event) => {
      // the page scrolls on, unless the chart was clicked or Ctrl is held
      if (!event.ctrlKey && document.activeElement !== canvas) return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, ...units(event));
    }, { passive: false });
    canvas.addEventListener("focus", () => {
      if (canvas.matches(":focus-visible") && at === null) step(0, 0);
    });
    canvas.addEventListener("blur", hide);
    canvas.addEventListener("keydown", (event) => {
      const actions = {
        ArrowRight: () => step(0, 1),
        ArrowLeft: () => step(0, -1),
        ArrowDown: () => step(1, 0),
        ArrowUp: () => step(-1, 0),
        "+": () => zoom(0.8),
        "=": () => zoom(0.8),
        "-": () => zoom(1.25),
        0: reset,
        Escape: hide,
      };
      const action = actions[event.key];
      if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      action();
    });
    const zooms = { in: () => zoom(0.7), out: () => zoom(1 / 0.7), reset };
    for (const button of chart.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => zooms[button.dataset.zoom]());
    }
    for (const button of chart.querySelectorAll("[data-series]")) {
      button.addEventListener("click", () => {
        const off = !hidden.delete(button.dataset.series);
        if (off) hidden.add(button.dataset.series);
        button.setAttribute("aria-pressed", String(!off));
        for (const one of series.filter((s) => s.label === button.dataset.series)) {
          for (const part of one.ids.map(byId)) if (part) part.style.display = off ? "none" : "";
          for (const part of one.faded.map(byId)) if (part) part.style.opacity = off ? 0.25 : "";
        }
        hide();
      });
    }
  }

  function filter(box) {
    box.hidden = false;
    const buttons = [...box.querySelectorAll("[data-show]")];
    for (const button of buttons) {
      button.addEventListener("click", () => {
        const wanted = button.dataset.show;
        for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
        for (const part of document.querySelectorAll("[data-standing]")) {
          part.hidden = wanted !== "" && part.dataset.standing !== wanted;
        }
        const rows = document.querySelectorAll("tr[data-standing]:not([hidden])").length;
        byId("shown").textContent = `${rows} shown`;
      });
    }
  }

  async function copy(button) {
    const text = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      // a page from a disk may not write: the words are marked, ready to be copied by hand
      getSelection().selectAllChildren(text);
      button.textContent = "Marked: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  document.querySelectorAll("figure.chart").forEach(start);
  const hint = document.querySelector(".hint"); // said once, below the first chart
  if (hint) hint.hidden = false;
  document.querySelectorAll(".filter").forEach(filter);
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
})();

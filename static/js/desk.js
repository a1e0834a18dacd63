/* What the pages cannot do without a script: say that a request failed, move the focus, walk rows by keys.
   Everything works without it. */
"use strict";

const status = () => document.getElementById("status");

function say(text) {
  const place = status();
  if (place) place.textContent = text;
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.requestConfig.verb !== "get") say("");
});

document.addEventListener("htmx:responseError", (event) => {
  if (event.detail.requestConfig.verb !== "get") say(status()?.dataset.refused ?? "");
});

for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => {
    if (event.detail.requestConfig.verb !== "get") say(status()?.dataset.unreachable ?? "");
  });
}

/* After the main region was replaced, the focus goes to what was said in it. */
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.target?.id !== "main") return;
  const heading = document.querySelector("#main [data-focus]");
  if (!heading) return;
  heading.focus({ preventScroll: true });
  heading.scrollIntoView({ block: "nearest" });
});

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const menu = event.target.closest?.("details.menu[open]");
  if (menu && event.key === "Escape") {
    menu.open = false;
    menu.querySelector("summary")?.focus();
    return;
  }
  const rows = event.target.closest?.("[data-rows]");
  const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
  if (!rows || !step) return;
  const links = [...rows.querySelectorAll("tbody a")];
  const next = links[links.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
});

/* A menu closes when something outside of it is pressed. */
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

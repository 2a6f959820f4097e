// Shows what changed, every two seconds, where a page asks for it by `data-live`. A form that is
// being filled in, and a part that is being read by keyboard, stay as they are.
"use strict";
const renew = async () => {
  const shown = document.querySelector("main[data-live]");
  if (!shown || document.hidden || shown.contains(document.activeElement)) return;
  const answer = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
  if (!answer || !answer.ok || answer.redirected) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const renewed = page.querySelector("main");
  if (!renewed || renewed.innerHTML === shown.innerHTML) return;
  const open = [...shown.querySelectorAll("details")].map((each) => each.open);
  shown.replaceWith(document.importNode(renewed, true));
  document.querySelectorAll("main details").forEach((each, place) => { each.open = open[place] ?? false; });
};
setInterval(renew, 2000);

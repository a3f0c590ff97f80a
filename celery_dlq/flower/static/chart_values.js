// Shows the values under the pointer at once: a column, and the marks on it. Without this script, the browser's own
// tooltip shows one of them later.
(function () {
  "use strict";

  var box = document.createElement("div");
  box.className = "dlq-value";
  box.setAttribute("aria-hidden", "true");
  box.hidden = true;
  // The shapes whose values are shown, each with its title. The browser's own tooltip would cover the value.
  var shown = [];

  function shapesAt(event) {
    if (!event.target.closest || !event.target.closest(".dlq-chart-columns")) { return []; }
    var found = document.elementsFromPoint(event.clientX, event.clientY).map(function (element) {
      return element.closest(".dlq-chart-columns g");
    });
    return found.filter(function (shape, place) { return shape && found.indexOf(shape) === place; });
  }

  function hide() {
    shown.forEach(function (one) { if (one.title) { one.shape.prepend(one.title); } });
    shown = [];
    box.hidden = true;
  }

  function show(shapes) {
    hide();
    shown = shapes.map(function (shape) { return { shape: shape, title: shape.querySelector("title") }; });
    box.textContent = shown.map(function (one) { return one.title ? one.title.textContent : ""; }).join("\n");
    shown.forEach(function (one) { if (one.title) { one.title.remove(); } });
    if (!box.isConnected) { document.querySelector(".dlq").append(box); }
    box.hidden = !shown.length;
  }

  function place(event) {
    var page = document.documentElement.clientWidth;
    box.style.left = Math.max(4, Math.min(event.clientX + 12, page - box.offsetWidth - 4)) + "px";
    box.style.top = Math.max(4, event.clientY - box.offsetHeight - 12) + "px";
  }

  function follow(event) {
    var shapes = shapesAt(event);
    var isSame = shapes.length === shown.length && shapes.every(function (shape, at) { return shape === shown[at].shape; });
    if (!isSame) { show(shapes); }
    if (shapes.length) { place(event); }
  }

  document.addEventListener("pointermove", follow);
  // A touch does not move.
  document.addEventListener("pointerdown", follow);
  document.addEventListener("pointerleave", hide);
  document.addEventListener("scroll", hide, { passive: true });
})();

// Shows the value under the pointer at once. Without this script, the browser's own tooltip shows it later.
(function () {
  "use strict";

  var box = document.createElement("div");
  box.className = "dlq-value";
  box.setAttribute("aria-hidden", "true");
  box.hidden = true;
  var shown = null;

  // The browser's own tooltip would cover the value.
  function hide() {
    if (shown) { shown.shape.prepend(shown.title); }
    shown = null;
    box.hidden = true;
  }

  function place(event) {
    var page = document.documentElement.clientWidth;
    box.style.left = Math.max(4, Math.min(event.clientX + 12, page - box.offsetWidth - 4)) + "px";
    box.style.top = Math.max(4, event.clientY - box.offsetHeight - 12) + "px";
  }

  function show(shape, event) {
    var title = shape.querySelector("title");
    if (!title) { return; }
    hide();
    shown = { shape: shape, title: title };
    title.remove();
    box.textContent = title.textContent;
    if (!box.isConnected) { document.querySelector(".dlq").append(box); }
    box.hidden = false;
    place(event);
  }

  document.addEventListener("pointerover", function (event) {
    var shape = event.target.closest && event.target.closest(".dlq-chart-columns g");
    if (shown && shape !== shown.shape) { hide(); }
    if (shape && !shown) { show(shape, event); }
  });
  document.addEventListener("pointermove", function (event) { if (shown) { place(event); } });
  document.addEventListener("pointerleave", hide);
  document.addEventListener("scroll", hide, { passive: true });
})();

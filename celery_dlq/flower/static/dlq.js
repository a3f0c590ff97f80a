// Conveniences; every page works without them.
(function () {
  "use strict";

  var read = window.dlqPages.read;

  // Continue a search automatically until it finds something.
  function searchOn() {
    var further = document.querySelector("#dlq-results[data-searching] a[rel=next]");
    if (!further) { return; }
    read(further.href).then(function (page) {
      document.getElementById("dlq-results").replaceWith(page.getElementById("dlq-results"));
      window.history.replaceState(null, "", further.href);
      document.querySelector(".dlq").dispatchEvent(new Event("dlq-replaced"));
      searchOn();
    }).catch(function () { /* the link is still there */ });
  }
  searchOn();

  // Leave empty fields out of the address.
  document.querySelectorAll("form.dlq-filters").forEach(function (form) {
    form.addEventListener("submit", function () {
      form.querySelectorAll("input, select").forEach(function (field) {
        if (!field.value) { field.disabled = true; }
      });
    });
  });
  window.addEventListener("pageshow", function () {
    document.querySelectorAll("form.dlq-filters :disabled").forEach(function (field) { field.disabled = false; });
  });

  // A limit is the number of letters to confirm.
  document.querySelectorAll(".dlq-bulk input[name=limit]").forEach(function (limit) {
    limit.addEventListener("input", function () {
      document.querySelectorAll(".dlq-to-take").forEach(function (shown) {
        var all = Number(shown.getAttribute("data-all"));
        shown.textContent = Math.min(all, Number(limit.value) || all).toLocaleString("en-US");
      });
    });
  });

  // A button that needs a reason, or a whole form, is enabled once it has them. Without this, the server refuses.
  function gate() {
    document.querySelectorAll("[data-needs]").forEach(function (button) {
      button.disabled = !document.getElementById(button.dataset.needs).value.trim();
    });
    document.querySelectorAll("form.dlq-bulk").forEach(function (form) {
      form.querySelector("#dlq-confirm").disabled = !form.checkValidity();
    });
  }
  ["input", "change", "pageshow"].forEach(function (name) { window.addEventListener(name, gate); });
  gate();

  // Refresh the progress while the page is visible.
  function refresh() {
    var first = document.querySelector(".dlq-live[data-refresh]");
    var seconds = first && Number(first.getAttribute("data-refresh"));
    if (!seconds) { return; }
    window.setTimeout(function () {
      if (document.hidden) { refresh(); return; }
      read(window.location.href).then(function (page) {
        document.querySelectorAll(".dlq-live").forEach(function (live) {
          var next = page.getElementById(live.id);
          // Do not replace a part with the focus on a button, with text in a field, or with something unfolded.
          var written = [].some.call(live.querySelectorAll("input.form-control"), function (field) { return field.value; });
          var busy = written || live.querySelector("details[open]") || live.contains(document.activeElement);
          if (next && !busy) { live.replaceWith(next); }
        });
        gate();
      }).catch(function () { /* the next refresh may succeed */ }).then(refresh);
    }, seconds * 1000);
  }
  refresh();
})();

// Checks the message while it is typed, as the button "Check" does.
(function () {
  "use strict";
  var form = document.getElementById("dlq-edit-form");
  if (!form) { return; }
  var PAUSE_MS = 400;
  // A longer message is checked by the button only.
  var MOST = 100000;
  var timer = null, running = null;

  function texts() { return [].slice.call(form.querySelectorAll("textarea")); }

  function length() { return texts().reduce(function (sum, field) { return sum + field.value.length; }, 0); }

  // Show the results of a page that the server has made of the form.
  function show(page) {
    form.querySelectorAll("[data-checked]").forEach(function (part) {
      var next = page.getElementById(part.id);
      if (next) { part.replaceChildren.apply(part, [].slice.call(next.childNodes)); }
    });
    texts().forEach(function (field) {
      var problem = document.getElementById(field.getAttribute("aria-describedby")).textContent.trim();
      if (problem) { field.setAttribute("aria-invalid", "true"); } else { field.removeAttribute("aria-invalid"); }
      var folded = field.closest("details");
      if (folded && problem) { folded.open = true; }
    });
  }

  // Until the next result.
  function say(text) {
    var said = document.getElementById("dlq-unchecked") || document.createElement("p");
    said.id = "dlq-unchecked";
    said.className = "dlq-error";
    said.textContent = text;
    document.getElementById("dlq-edit-diff").appendChild(said);
  }

  function check() {
    if (length() > MOST) { say("This message is long, so it is not checked while you type. Choose Check."); return; }
    if (running) { running.abort(); }
    running = new AbortController();
    var given = new URLSearchParams(new FormData(form));
    given.set("do", "check");
    var options = { method: "POST", body: given, signal: running.signal };
    window.dlqPages.read(form.action, options).then(show).catch(function (error) {
      if (error.name !== "AbortError") { say("This was not checked: Flower refused it, or did not answer. Choose Check."); }
    });
  }

  form.addEventListener("input", function (event) {
    if (event.target.tagName !== "TEXTAREA") { return; }
    window.clearTimeout(timer);
    timer = window.setTimeout(check, PAUSE_MS);
  });
})();

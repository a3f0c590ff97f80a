// Additions to Flower's own pages: a link from a task to its dead letter, and a task filter for dead letters.
// Each part runs by itself, so that a change in Flower breaks that part only.
(function () {
  "use strict";

  var deadState = document.currentScript.dataset.deadState;
  var field = document.getElementById("url_prefix");
  var bare = field ? field.value.replace(/^\/+|\/+$/g, "") : "";
  var root = bare ? "/" + bare : "";

  function guarded(part) {
    try { part(); } catch (error) { console.warn("celery_dlq:", error); }
  }

  // Link to the dead letter on the page of a task.
  guarded(function () {
    var shown = document.getElementById("taskid");
    if (!shown || !document.getElementById("task-page")) { return; }
    var about = root + "/dead-letters/of-task/" + encodeURIComponent(shown.textContent);
    fetch(about, { credentials: "same-origin" }).then(function (answer) {
      return answer.ok ? answer.json() : { state: null };
    }).then(function (found) {
      if (!found.state) { return; }
      var link = document.createElement("a");
      link.id = "dlq-letter";
      link.className = "btn btn-primary";
      link.href = found.address;
      link.textContent = "Dead letter (" + found.state + ")";
      var place = document.querySelector("#task-page .detail-actions, #task-page .page-header h2");
      place.append(" ", link);
    }).catch(function () { /* logged out, or the store does not answer: the page works without the link */ });
  });

  // Add filters before Flower's own script reads them.
  guarded(function () {
    var choices = document.querySelector(".task-state-filters");
    if (!choices || !deadState) { return; }
    [[deadState, "Dead-lettered"], ["REDRIVEN", "Redriven"]].forEach(function (state) {
      var choice = document.createElement("button");
      choice.type = "button";
      choice.className = "task-state-filter";
      choice.dataset.taskState = state[0];
      choice.setAttribute("aria-pressed", "false");
      choice.textContent = state[1];
      choices.append(choice);
    });
  });

  // Colour our states; Flower shows unknown states in grey.
  guarded(function () {
    var colours = { "REDRIVEN": ["text-bg-info", "bg-info"] };
    if (deadState) { colours[deadState] = ["text-bg-danger", "bg-danger"]; }
    function colour() {
      document.querySelectorAll("#tasks-table .badge, #task-page .badge").forEach(function (badge) {
        var wanted = colours[badge.textContent.trim()];
        if (!wanted) { return; }
        ["text-bg-secondary", "bg-secondary"].forEach(function (grey, place) {
          if (badge.classList.contains(grey)) { badge.classList.replace(grey, wanted[place]); }
        });
      });
    }
    colour();
    var table = document.getElementById("tasks-table");
    if (table) { new MutationObserver(colour).observe(table, { childList: true, subtree: true }); }
  });
})();

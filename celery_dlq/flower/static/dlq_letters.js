// The list of letters and its letters: a selection that lasts over several pages, and the way from one letter
// to the next. Every page works without this. The browser keeps both lists until its tab is closed.
(function () {
  "use strict";

  // Characters of the selected ids. They are sent in an address, and proxies refuse one of more than 8,000.
  var MOST_SELECTED = 7000;

  // Letters before the present one that are remembered.
  var MOST_BEFORE = 200;

  var page = document.querySelector(".dlq");
  if (!page) { return; }

  function recall(name) {
    try { return JSON.parse(window.sessionStorage.getItem(name)) || {}; } catch (error) { return {}; }
  }

  function keep(name, value) {
    try { window.sessionStorage.setItem(name, JSON.stringify(value)); } catch (error) { /* not allowed, or full */ }
  }

  function forget(name) {
    try { window.sessionStorage.removeItem(name); } catch (error) { /* not allowed */ }
  }

  // Which list this is: the same on each of its pages, whatever the order of the address.
  function filters() {
    var list = document.getElementById("dlq-list");
    return window.location.pathname + "?" + (list ? list.dataset.filters : "");
  }

  function boxes() {
    return [].slice.call(document.querySelectorAll("#dlq-letters tbody .dlq-tick input"));
  }

  // ---- The selection -------------------------------------------------------------------------------------

  function selected() {
    var found = recall("dlq-selected");
    return found.filters === filters() && found.ids ? found.ids : [];
  }

  function select(ids) {
    if (ids.length) { keep("dlq-selected", { filters: filters(), ids: ids }); } else { forget("dlq-selected"); }
    show();
  }

  function ticked() {
    var here = boxes();
    var onPage = here.map(function (box) { return box.value; });
    var elsewhere = selected().filter(function (id) { return onPage.indexOf(id) < 0; });
    var now = here.filter(function (box) { return box.checked; }).map(function (box) { return box.value; });
    return { all: elsewhere.concat(now), elsewhere: elsewhere };
  }

  function tell(text) {
    var status = document.getElementById("dlq-selected");
    status.hidden = !text;
    status.querySelector("span").textContent = text;
  }

  function show() {
    var found = ticked(), elsewhere = found.elsewhere.length;
    tell(elsewhere ? found.all.length + " selected, " + elsewhere + " of them on other pages." : "");
    document.querySelectorAll("#dlq-list [data-selected]").forEach(function (button) {
      button.disabled = !found.all.length;
    });
  }

  function change() {
    var found = ticked();
    var characters = found.all.reduce(function (sum, id) { return sum + encodeURIComponent(id).length + 4; }, 0);
    if (characters > MOST_SELECTED) {
      var before = selected();
      this.checked = false;
      boxes().forEach(function (box) { box.checked = before.indexOf(box.value) >= 0; });
      tell("No more letters can be selected. To act on more, use filters, and act on all that match.");
      return;
    }
    select(found.all);
  }

  function offerAll(head) {
    var all = document.createElement("input");
    all.type = "checkbox";
    all.setAttribute("aria-label", "Select all on this page");
    all.addEventListener("change", function () {
      boxes().forEach(function (box) { box.checked = all.checked; });
      change.call(all);
    });
    head.replaceChildren(all);
  }

  function offerSelection() {
    var list = document.getElementById("dlq-list");
    var head = list && list.querySelector("thead .dlq-tick");
    if (!head) { return; }
    var before = selected();
    boxes().forEach(function (box) {
      box.checked = before.indexOf(box.value) >= 0;
      box.addEventListener("change", change);
    });
    offerAll(head);
    var status = document.createElement("p");
    status.id = "dlq-selected";
    status.setAttribute("role", "status");
    status.append(document.createElement("span"), " ");
    var clear = document.createElement("button");
    clear.type = "button";
    clear.className = "btn btn-sm btn-outline-secondary";
    clear.textContent = "Clear the selection";
    clear.addEventListener("click", function () {
      boxes().forEach(function (box) { box.checked = false; });
      select([]);
    });
    status.append(clear);
    list.querySelector(".dlq-list-head").append(status);
    list.addEventListener("submit", function () {
      list.querySelectorAll("input[data-elsewhere]").forEach(function (field) { field.remove(); });
      ticked().elsewhere.forEach(function (id) {
        var field = document.createElement("input");
        field.type = "hidden";
        field.name = "id";
        field.value = id;
        field.setAttribute("data-elsewhere", "");
        list.append(field);
      });
    });
    show();
  }

  // An act on many letters ends the selection.
  document.querySelectorAll("form.dlq-bulk").forEach(function (form) {
    form.addEventListener("submit", function (event) {
      var isCheck = event.submitter && event.submitter.name === "plan";
      if (!isCheck) { forget("dlq-selected"); }
    });
  });

  // ---- From letter to letter -----------------------------------------------------------------------------

  function lettersOn(shown) {
    return [].map.call(shown.querySelectorAll("#dlq-letters tbody td[data-label=Id] a"), function (link) {
      return link.getAttribute("href");
    });
  }

  function nextOf(shown) {
    var link = shown.querySelector("#dlq-results .dlq-pages a[rel=next]");
    return link ? link.getAttribute("href") : "";
  }

  function noteList() {
    if (!document.getElementById("dlq-letters") || !document.getElementById("dlq-list")) { return; }
    keep("dlq-list", {
      address: window.location.pathname + window.location.search,
      letters: lettersOn(document),
      next: nextOf(document)
    });
  }

  // Near the end of the letters that are known, learn those of the next page of the list.
  function extend(list) {
    return window.dlqPages.read(list.next).then(function (shown) {
      list.address = list.next;
      list.letters = list.letters.slice(-MOST_BEFORE).concat(lettersOn(shown));
      list.next = nextOf(shown);
      keep("dlq-list", list);
      return list;
    });
  }

  function offerWay(list) {
    var place = list.letters.indexOf(window.location.pathname);
    var way = document.getElementById("dlq-way");
    var to = { previous: list.letters[place - 1], next: list.letters[place + 1] };
    way.querySelector("[data-way=list]").href = list.address;
    ["previous", "next"].forEach(function (name) {
      var link = way.querySelector("[data-way=" + name + "]");
      link.hidden = !to[name];
      if (to[name]) { link.href = to[name]; }
    });
    way.hidden = false;
  }

  function listenForKeys() {
    document.addEventListener("keydown", function (event) {
      var names = { j: "next", k: "previous" };
      var name = names[event.key];
      var isTyping = event.target.closest("input, textarea, select, [contenteditable]");
      if (!name || isTyping || event.ctrlKey || event.altKey || event.metaKey) { return; }
      var link = document.querySelector("#dlq-way:not([hidden]) [data-way=" + name + "]:not([hidden])");
      if (link) { link.click(); }
    });
  }

  function goOn() {
    var list = recall("dlq-list");
    var place = (list.letters || []).indexOf(window.location.pathname);
    if (place < 0 || !document.getElementById("dlq-way")) { return; }
    listenForKeys();
    offerWay(list);
    if (place >= list.letters.length - 3 && list.next) {
      extend(list).then(offerWay).catch(function () { /* the list is still there */ });
    }
  }

  // dlq.js replaces the list while it searches on.
  page.addEventListener("dlq-replaced", function () { offerSelection(); noteList(); });
  offerSelection();
  noteList();
  goOn();
})();

// Loads one of our pages as a document, for the other scripts.
window.dlqPages = {
  // Fails if the answer is an error, or the login.
  read: function (address, options) {
    "use strict";
    return window.fetch(address, Object.assign({ credentials: "same-origin" }, options)).then(function (answer) {
      if (!answer.ok || answer.redirected) { throw new Error("not now"); }
      return answer.text();
    }).then(function (html) { return new DOMParser().parseFromString(html, "text/html"); });
  }
};

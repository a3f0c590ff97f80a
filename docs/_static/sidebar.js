// The list of pages is longer than the window: open it at this page.
const here = document.querySelector(".sidebar-tree .current-page");
const list = here?.closest(".sidebar-scroll");
if (list) {
  const { top } = here.getBoundingClientRect();
  list.scrollTop += top - list.getBoundingClientRect().top - list.clientHeight / 3;
}

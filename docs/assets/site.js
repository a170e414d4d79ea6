// The theme puts each code block's copy button into a navigation of its own, without a name. Name them, for those who listen.
new MutationObserver(() => {
  document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((nav, at) => nav.setAttribute("aria-label", `Code block ${at + 1}`));
}).observe(document.documentElement, { childList: true, subtree: true });

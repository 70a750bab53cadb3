/* What only the browser knows: the URL, the stored theme, the clock zone, and whether the web server is still there. */
(function () {
  "use strict";
  var WINDOWS = ["1m", "5m", "15m", "1h"], DEFAULT = "5m", KEY = "pbkv-scheme";
  var LOST_MS = 8000, PROBE_MS = 4000;

  function triggered(id) {
    return (window.dash_clientside.callback_context.triggered || []).some(function (t) { return t.prop_id.indexOf(id + ".") === 0; });
  }

  function stored() {
    try { return localStorage.getItem(KEY) === "light" ? "light" : "dark"; } catch (e) { return "dark"; }
  }

  function store(scheme) {
    try { localStorage.setItem(KEY, scheme); } catch (e) { /* private mode: the choice lasts as long as the page */ }
  }

  /* Names this page to the server, so that what it asked for is given up when it has left. Not randomUUID: it needs https. */
  var PAGE = Array.from(crypto.getRandomValues(new Uint8Array(12)), function (b) { return b.toString(16).padStart(2, "0"); }).join("");

  function whatif() { return location.pathname === "/whatif"; }

  function unseen() { return document.hidden || whatif(); }

  var current = null, prefs = null;
  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.pbkv = {
    window_in_url: function (search, value) {
      var none = window.dash_clientside.no_update, params = new URLSearchParams(search || ""), asked = params.get("window");
      if (triggered("window") && !triggered("url")) {
        if (asked === value || (asked === null && value === DEFAULT)) { return [none, none]; }
        params.set("window", value);
        return ["?" + params.toString(), none];
      }
      var valid = WINDOWS.indexOf(asked) >= 0 ? asked : DEFAULT;
      return [none, valid === value ? none : valid];
    },
    scheme: function (clicks) {
      current = current || stored();
      if (clicks && triggered("scheme")) { current = current === "dark" ? "light" : "dark"; store(current); }
      document.documentElement.setAttribute("data-ag-theme-mode", current);
      return [current, current === "dark" ? "Light theme" : "Dark theme"];
    },
    pause: function (clicks) {
      var paused = (clicks || 0) % 2 === 1;
      document.documentElement.classList.toggle("paused", paused);
      return paused ? "Resume" : "Pause";
    },
    view: function (path) {
      var other = path === "/whatif";
      if (!other) { window.dispatchEvent(new Event("resize")); }
      return [other ? "view out" : "view", other ? "view" : "view out", other ? "nav" : "nav current", other ? "nav current" : "nav"];
    },
    prefs: function (path, value, clicks, scheme) {
      var zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
      prefs = { window: value, paused: (clicks || 0) % 2 === 1, hidden: unseen(), scheme: scheme, zone: zone, page: PAGE };
      return prefs;
    }
  };

  /* Nobody looks at a hidden tab: the server stops drawing for it. */
  document.addEventListener("visibilitychange", function () {
    if (!prefs) { return; }
    prefs = Object.assign({}, prefs, { hidden: unseen() });
    window.dash_clientside.set_props("prefs", { data: prefs });
  });

  /* The links to CSV take the window that is shown at the moment of the click. */
  document.addEventListener("click", function (event) {
    var link = event.target.closest && event.target.closest("a.csv");
    if (!link) { return; }
    var url = new URL(link.href), asked = new URLSearchParams(location.search).get("window");
    url.searchParams.set("window", WINDOWS.indexOf(asked) >= 0 ? asked : DEFAULT);
    link.href = url.toString();
  }, true);

  /* The server counts a beat up twice a second. When it stands still the page says so; when the server answers again but the
     stream does not come back (it gives up after some minutes) the page loads itself anew. */
  var last = null, since = Date.now(), offline = false, answered = 0, probed = 0;
  setInterval(function () {
    var beat = document.getElementById("beat"), now = Date.now();
    if (!beat) { return; }
    if (beat.textContent !== last) { last = beat.textContent; since = now; answered = 0; }
    offline = now - since > LOST_MS;
    document.documentElement.classList.toggle("offline", offline);
    if (!offline || now - probed < PROBE_MS) { return; }
    probed = now;
    fetch("/healthz", { cache: "no-store" }).then(function (r) {
      if (r.ok && ++answered >= 4) { location.reload(); }
    }).catch(function () { answered = 0; });
  }, 1000);
})();

/* Search in pages that are opened from the disk: browsers refuse a Worker there, so its script runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.ready = new Promise(done => {
        frame.onload = () => {
          const inside = frame.contentWindow;
          inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }));
          const element = inside.document.createElement("script");
          element.onload = () => done(inside);
          element.src = script;
          inside.document.body.append(element);
        };
      });
      document.body.append(frame);
    }

    postMessage(data) {
      this.ready.then(inside => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
    }
  };
}

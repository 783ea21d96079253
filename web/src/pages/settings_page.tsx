// Settings of this browser, and facts about the host.
import { useState } from "preact/hooks";
import { post } from "../base/api";
import { status } from "../base/live";
import { change, settings, type Settings } from "../base/settings";
import { count, seconds } from "../base/say";
import { Switch, useAction, ErrorBox } from "../parts/basics";

export function SettingsPage() {
  const { theme, letters, notifications } = settings.value;
  const [said, say] = useState("");
  const action = useAction();
  const host = status.value;
  const notify = async (on: boolean) => {
    if (!on) return change({ notifications: false });
    const answer = "Notification" in window ? await Notification.requestPermission() : "denied";
    if (answer === "granted") change({ notifications: true });
    else say("The browser does not allow notifications for this page. Allow them in its site settings.");
  };
  return (
    <div class="page"><div class="stack">
      <h1 tabIndex={-1} data-start>Settings</h1>
      <section class="card"><h2>This browser</h2>
        <fieldset class="field"><legend>Theme</legend><div class="row">
          {(["system", "light", "dark"] as Settings["theme"][]).map((one) => (
            <label class="check" key={one}><input type="radio" name="theme" checked={theme === one} onChange={() => change({ theme: one })} /> <span>{one === "system" ? "as the system" : one}</span></label>
          ))}</div></fieldset>
        <div class="row spread"><span><b>Single-letter keys</b><br /><span class="muted">such as g t, j, k and /. Ctrl+K always works.</span></span><Switch on={letters} label="Single-letter keys" change={(on) => change({ letters: on })} /></div>
        <div class="row spread"><span><b>Notifications</b><br /><span class="muted">when a call waits for you and this page is in the background. They name no arguments.</span></span><Switch on={notifications} label="Notifications" change={(on) => void notify(on)} /></div>
        <p role="status" class="warn">{said}</p>
      </section>
      {host ? (
        <section class="card"><h2>Host</h2>
          <dl class="facts">
            <div><dt>version</dt><dd>anyplug {host.version}, up {seconds(host.uptime_s)}</dd></div>
            <div><dt>home</dt><dd><code class="quoted">{host.home}</code></dd></div>
            <div><dt>project</dt><dd><code class="quoted">{host.project}</code></dd></div>
            <div><dt>address</dt><dd><code>{host.url}</code></dd></div>
            <div><dt>plugins</dt><dd>{count(host.plugins, "plugin")}, {host.approved} approved, {count(host.tools, "tool")}</dd></div>
            <div><dt>API</dt><dd><a href="/api/v1/openapi.json" target="_blank" rel="noopener">OpenAPI document</a></dd></div>
          </dl>
          {action.error ? <ErrorBox error={action.error} /> : null}
          <div class="row"><button type="button" onClick={() => void action.run(async () => { await post("/logout"); location.reload(); })}>End this session</button></div>
        </section>
      ) : null}
    </div></div>
  );
}

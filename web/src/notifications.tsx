// Desktop notifications about questions, if the person wants them. Arguments are never in them.
import { useEffect, useRef } from "preact/hooks";
import { questions } from "./base/live";
import { settings } from "./base/settings";

export function Notifications() {
  const told = useRef(new Set<string>());
  const open = questions.value;
  useEffect(() => {
    for (const question of open) {
      if (told.current.has(question.id)) continue;
      told.current.add(question.id);
      if (!settings.value.notifications || !document.hidden || Notification.permission !== "granted") continue;
      new Notification("anyplug is waiting for you", { body: "A call needs your answer.", tag: question.id });
    }
  }, [open]);
  return null;
}

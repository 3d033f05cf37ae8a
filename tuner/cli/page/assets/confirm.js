// Asks before something is changed that cannot be taken back, or that others notice.

import { byId } from "./dom.js";

/** True where the user says yes; the dialog keeps the focus, and Escape is no. */
export function confirmed(question, consequence, verb) {
  const dialog = byId("confirm");
  byId("confirm-question").textContent = question;
  byId("confirm-consequence").textContent = consequence;
  byId("confirm-yes").textContent = verb;
  dialog.returnValue = "no";
  dialog.showModal();
  byId("confirm-no").focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

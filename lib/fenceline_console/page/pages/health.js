// @ts-check
import { html, Nothing } from "../ui.js";
export const Health = () => html`<h1>Health</h1><${Nothing} title="Not built yet" />`;

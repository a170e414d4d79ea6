// @ts-check
import { html, Nothing } from "../ui.js";
export const Settings = () => html`<h1>Settings</h1><${Nothing} title="Not built yet" />`;

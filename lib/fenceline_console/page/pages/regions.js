// @ts-check
import { html, Nothing } from "../ui.js";
export const Regions = () => html`<h1>Regions</h1><${Nothing} title="Not built yet" />`;

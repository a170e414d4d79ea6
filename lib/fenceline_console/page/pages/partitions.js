// @ts-check
import { html, Nothing } from "../ui.js";
export const Partitions = () => html`<h1>Partitions</h1><${Nothing} title="Not built yet" />`;

// @ts-check
import { html, Nothing } from "../ui.js";
export const Transactions = () => html`<h1>Transactions</h1><${Nothing} title="Not built yet" />`;

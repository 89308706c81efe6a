// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// A page that draws the JSON of a dashboard with Grafana's libraries, from what a Prometheus answers. It fails if the
// dashboard has panels, variables, or transformations that it doesn't know.
//
// Its query has dashboard and prometheus (URLs), from and to (seconds), scrape (the interval in seconds), and mode
// (light or dark).
import {
  applyFieldOverrides, createDataFrame, createTheme, dateTime, FieldColorModeId, FieldConfigOptionsRegistry, FieldType,
  getFieldDisplayValues, ThemeContext, ThresholdsMode, type DataFrame, type FieldConfigSource,
} from '@grafana/data';
import { BigValue, BigValueColorMode, BigValueGraphMode, BigValueTextMode, GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import { LegendDisplayMode } from '@grafana/schema';
import { merge } from 'lodash';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

const query = new URLSearchParams(location.search);
const given = (name: string) => query.get(name) ?? fail(`the query has no ${name}`);
const fail = (message: string): never => { throw new Error(message); };

const theme = createTheme({ colors: { mode: given('mode') as 'light' | 'dark' } });
const from = Number(given('from')), to = Number(given('to')), scrape = Number(given('scrape'));
const timeRange = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: dateTime(from * 1000), to: dateTime(to * 1000) } };

// Grafana's grid: 24 columns, rows of 30 pixels, and 8 pixels between panels.
const column = 1200 / 24, row = 38, gap = 8;

type Target = { refId: string; expr: string; legendFormat?: string };
type Panel = {
  id: number; title: string; description?: string; type: string; gridPos: { x: number; y: number; w: number; h: number };
  fieldConfig: FieldConfigSource; options?: any; targets?: Target[]; transformations?: unknown[];
};

// What Grafana adds to a panel that doesn't set it.
const added: Record<string, { field: any; options: any }> = {
  stat: {
    field: { color: { mode: FieldColorModeId.Thresholds } },
    options: { reduceOptions: { calcs: ['lastNotNull'] }, colorMode: BigValueColorMode.Value, graphMode: BigValueGraphMode.Area, textMode: BigValueTextMode.Auto },
  },
  timeseries: {
    field: {
      color: { mode: FieldColorModeId.PaletteClassic },
      custom: {
        drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none', spanNulls: false,
        showPoints: 'auto', pointSize: 5, stacking: { mode: 'none', group: 'A' }, axisPlacement: 'auto', axisColorMode: 'text',
        scaleDistribution: { type: 'linear' }, axisLabel: '', axisCenteredZero: false, barAlignment: 0, barWidthFactor: 0.6,
        hideFrom: { tooltip: false, viz: false, legend: false }, insertNulls: false, thresholdsStyle: { mode: 'off' },
      },
    },
    options: { legend: { showLegend: true, displayMode: LegendDisplayMode.List, placement: 'bottom', calcs: [] } },
  },
};
const thresholds = { mode: ThresholdsMode.Absolute, steps: [{ color: 'green', value: -Infinity }, { color: 'red', value: 80 }] };

async function ask(path: string, parameters: Record<string, string>) {
  const answer = await (await fetch(`${given('prometheus')}/api/v1/${path}?${new URLSearchParams(parameters)}`)).json();
  return answer.status === 'success' ? answer.data : fail(`${path} ${JSON.stringify(parameters)}: ${answer.error}`);
}

// The values of the dashboard's variables, all of them selected. A query that finds nothing fails.
async function variables(list: any[]) {
  const values: Record<string, string> = {};
  for (const variable of list) {
    if (variable.type === 'datasource') {
      values[variable.name] = 'Prometheus';
      continue;
    }
    const [, metric, label] = /^label_values\((.+), *(\w+)\)$/.exec(variable.query.query ?? variable.query) ?? fail(`variable ${variable.name}: ${variable.query}`);
    const found: string[] = await ask(`label/${label}/values`, { 'match[]': metric, start: String(from), end: String(to) });
    if (!found.length || !variable.includeAll) {
      fail(`variable ${variable.name} has ${found.length} values`);
    }
    values[variable.name] = variable.allValue ?? `(${found.join('|')})`;
  }
  return values;
}

// The results of a panel's queries, one frame for each series, as Grafana's data source for Prometheus names them.
async function frames(panel: Panel, values: Record<string, string>): Promise<DataFrame[]> {
  if (!added[panel.type] || panel.transformations?.length) {
    fail(`${panel.title}: a panel of type ${panel.type}, or its transformations, can't be drawn`);
  }
  // As many points as pixels, but not more than one for each scrape; the step is one of Grafana's.
  const least = (to - from) / (panel.gridPos.w * column);
  const step = [scrape, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600].find((s) => s >= Math.max(least, scrape))!;
  const all: Record<string, string> = { ...values, __range: `${to - from}s`, __rate_interval: `${Math.max(step + scrape, 4 * scrape)}s`, __interval: `${step}s` };
  const result: DataFrame[] = [];
  for (const target of panel.targets ?? []) {
    const expression = target.expr.replace(/\$([a-z_]\w*|\{\w+\})/g, (_, name) => all[name.replace(/[{}]/g, '')] ?? fail(`${panel.title}: no variable ${name}`));
    const start = Math.floor(from / step) * step;
    const { result: series } = await ask('query_range', { query: expression, start: String(start), end: String(to), step: String(step) });
    if (!series.length) {
      empty.add(`${panel.title} (${target.refId})`);
    }
    for (const { metric, values: points } of series) {
      const name = target.legendFormat
        ? target.legendFormat.replace(/\{\{ *(\w+) *\}\}/g, (_, label) => metric[label] ?? '')
        : JSON.stringify(metric);
      const at = new Map<number, number>(points.map(([time, value]: [number, string]) => [time, Number(value)]));
      const times = Array.from({ length: Math.floor((to - start) / step) + 1 }, (_, i) => start + i * step);
      result.push(createDataFrame({
        refId: target.refId,
        fields: [
          { name: 'Time', type: FieldType.time, values: times.map((t) => t * 1000), config: { interval: step * 1000 } },
          { name: 'Value', type: FieldType.number, values: times.map((t) => at.get(t) ?? null), labels: metric, config: { displayNameFromDS: name } },
        ],
      }));
    }
  }
  panels.set(panel.id, { title: panel.title, series: result.map((frame) => frame.fields[1].config.displayNameFromDS!) });
  return result;
}

// Every property that the panel sets, for Grafana's code that applies them.
function registry(config: FieldConfigSource) {
  const standard = Object.keys(config.defaults).filter((id) => id !== 'custom').map((path) => ({ path, isCustom: false }));
  const custom = Object.keys(config.defaults.custom ?? {}).map((path) => ({ path, isCustom: true }));
  const overridden = config.overrides.flatMap((o) => o.properties).map(({ id }) => ({ path: id.replace('custom.', ''), isCustom: id.startsWith('custom.') }));
  const options = new FieldConfigOptionsRegistry();
  for (const { path, isCustom } of [...standard, ...custom, ...overridden]) {
    const id = isCustom ? `custom.${path}` : path;
    if (!options.getIfExists(id)) {
      options.register({ id, path, isCustom, name: id, process: (value: any) => value, shouldApply: (field: any) => field.type === FieldType.number, editor: null as any, override: null as any });
    }
  }
  return options;
}

function Visualization({ panel, values, width, height }: { panel: Panel; values: Record<string, string>; width: number; height: number }) {
  const [data, setData] = useState<DataFrame[]>();
  useEffect(() => { frames(panel, values).then(setData).catch(report); }, []);
  if (!data) {
    return null;
  }
  const defaults = added[panel.type];
  const fieldConfig = merge({}, { defaults: merge({}, defaults.field, { thresholds: panel.fieldConfig.defaults.thresholds ?? thresholds }), overrides: [] }, panel.fieldConfig) as FieldConfigSource;
  const options = merge({}, defaults.options, panel.options);
  const replaceVariables = (text: string) => text;
  const shown = applyFieldOverrides({ data, fieldConfig, fieldConfigRegistry: registry(fieldConfig), replaceVariables, theme, timeZone: 'utc' });
  if (!shown.length) {
    return <div style={{ ...theme.typography.body, color: theme.colors.text.secondary, display: 'grid', placeItems: 'center', width, height }}>No data</div>;
  }
  if (panel.type === 'stat') {
    const displayed = getFieldDisplayValues({ data: shown, fieldConfig, reduceOptions: options.reduceOptions, sparkline: true, replaceVariables, theme, timeZone: 'utc' });
    return <>{displayed.map((value, i) => (
      <BigValue key={i} width={width / displayed.length} height={height} value={value.display} sparkline={options.graphMode === 'none' ? undefined : value.sparkline}
        colorMode={options.colorMode} graphMode={options.graphMode} textMode={options.textMode} count={displayed.length} theme={theme} />
    ))}</>;
  }
  return <TimeSeries frames={shown} timeRange={timeRange} timeZone="utc" width={width} height={height} legend={options.legend} options={options}>{() => null}</TimeSeries>;
}

// What the program that takes the pictures waits for and reads.
const done = Promise.withResolvers<any>();
(window as any).dashboard = done.promise;
const report = (error: unknown) => done.reject(error instanceof Error ? error : new Error(String(error)));
const panels = new Map<number, { title: string; series: string[] }>();
const empty = new Set<string>();

function Dashboard({ dashboard, values }: { dashboard: any; values: Record<string, string> }) {
  return <div style={{ position: 'relative' }}>{dashboard.panels.map((panel: Panel) => {
    const { x, y, w, h } = panel.gridPos;
    const at = { position: 'absolute' as const, left: x * column, top: y * row, width: w * column - gap };
    if (panel.type === 'row') {
      return <div key={panel.id} style={{ ...at, ...theme.typography.h5, color: theme.colors.text.primary, padding: '4px 0' }}>{panel.title}</div>;
    }
    return <div key={panel.id} style={at}>
      <PanelChrome title={panel.title} description={panel.description} width={w * column - gap} height={h * row - gap}>
        {(width, height) => <Visualization panel={panel} values={values} width={width} height={height} />}
      </PanelChrome>
    </div>;
  })}</div>;
}

async function main() {
  const dashboard = await (await fetch(given('dashboard'))).json();
  const values = await variables(dashboard.templating.list);
  const all: Panel[] = dashboard.panels;
  const height = Math.max(...all.map(({ gridPos: { y, h } }) => y + h)) * row;
  const rows = all.filter((panel) => panel.type === 'row').map((panel) => ({ title: panel.title, top: panel.gridPos.y * row }));
  const parts = [{ title: 'Overview', top: 0 }, ...rows].map((part, i, list) => ({ ...part, bottom: (list[i + 1]?.top ?? height) + gap }));
  const width = 24 * column + gap;
  document.body.style.cssText = `margin: 0; width: ${width}px; height: ${height + gap}px; background: ${theme.colors.background.canvas}`;
  const root = document.body.appendChild(document.createElement('div'));
  root.style.cssText = `position: relative; left: ${gap}px; top: ${gap}px`;
  createRoot(root).render(<ThemeContext.Provider value={theme}><GlobalStyles /><Dashboard dashboard={dashboard} values={values} /></ThemeContext.Provider>);
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  while (panels.size < all.length - rows.length) {
    await frame();
  }
  // React has drawn, and then the charts have.
  for (let i = 0; i < 10; i++) {
    await frame();
  }
  await document.fonts.ready;
  done.resolve({ width, panels: [...panels.values()], empty: [...empty], parts });
}
main().catch(report);

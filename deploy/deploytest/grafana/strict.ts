// What our dashboards may contain: Grafana's own types of its classic dashboard and of the two kinds of panels that we use, without
// the fields that Grafana leaves open (options, custom, targets), which are closed here with the panel's and the data source's types.
import type { Dashboard, DataSourceRef, FieldConfig, Panel, RowPanel } from '@grafana/schema';
import type * as stat from './node_modules/@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/types.gen';
import type * as timeseries from './node_modules/@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/types.gen';

// A query of Grafana's Prometheus data source, whose schema is not among the published ones.
interface Target {
  refId: string;
  datasource: DataSourceRef;
  expr: string;
  legendFormat: string;
  instant: boolean;
  range: boolean;
}

// Each panel has a title, a description, a unit and thresholds.
type Strict<Kind, Options, Custom> = Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & Required<Pick<Panel, 'id' | 'title' | 'description' | 'gridPos'>> & {
  type: Kind;
  options: Options;
  targets: Target[];
  fieldConfig: {
    defaults: Omit<FieldConfig, 'custom'> & Required<Pick<FieldConfig, 'unit' | 'thresholds'>> & { custom?: Custom };
    overrides: [];
  };
};

type Only = Omit<Dashboard, 'panels'> & Required<Pick<Dashboard, 'uid' | 'title' | 'description' | 'templating'>> & {
  panels: (
    | (Omit<RowPanel, 'panels'> & { panels: [] })
    | Strict<'stat', stat.Options, never>
    | Strict<'timeseries', timeseries.Options, timeseries.FieldConfig>
  )[];
};

// JSON has an enum's values, not its names.
type JSONOf<T> = T extends string ? `${T}` : T extends (infer U)[] ? JSONOf<U>[] : T extends object ? { [K in keyof T]: JSONOf<T[K]> } : T;

export type StrictDashboard = JSONOf<Only>;

// The types do refuse: an error that is expected and does not come is one.
const panel = { id: 1, title: '', description: '', gridPos: { h: 1, w: 1, x: 0, y: 0 }, targets: [] };
const thresholds: { mode: 'absolute'; steps: [] } = { mode: 'absolute', steps: [] };
export const refused: StrictDashboard['panels'] = [
  // @ts-expect-error no such kind of panel
  { ...panel, type: 'graph', options: {}, fieldConfig: { defaults: { unit: 's', thresholds }, overrides: [] } },
  // @ts-expect-error a graph without options
  { ...panel, type: 'timeseries', options: {}, fieldConfig: { defaults: { unit: 's', thresholds }, overrides: [] } },
  {
    ...panel,
    type: 'timeseries',
    options: {
      legend: {
        // @ts-expect-error not one of the enum's values
        displayMode: 'lsit',
        placement: 'bottom', showLegend: true, calcs: [],
      },
      tooltip: { mode: 'multi', sort: 'desc' },
    },
    fieldConfig: {
      defaults: {
        unit: 's', thresholds,
        // @ts-expect-error a field that does not exist
        custom: { lineWdith: 1 },
      },
      overrides: [],
    },
  },
];

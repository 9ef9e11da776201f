package deploytest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// dashboard is a Grafana dashboard in Grafana's classic JSON model (schema version 42), with the
// fields that watchfan's dashboards need. TestDashboardSchema compares it with Grafana's own types.
type dashboard struct {
	UID           string    `json:"uid"`
	Title         string    `json:"title"`
	Description   string    `json:"description"`
	Tags          []string  `json:"tags"`
	SchemaVersion int       `json:"schemaVersion"`
	Editable      bool      `json:"editable"`
	GraphTooltip  int       `json:"graphTooltip"` // 1: the crosshair is shared by all panels
	Refresh       string    `json:"refresh"`
	Time          timeRange `json:"time"`
	Links         []link    `json:"links"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []any `json:"panels"` // *panel and *row
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type link struct {
	Title       string   `json:"title"`
	Type        string   `json:"type"`
	Icon        string   `json:"icon"`
	Tooltip     string   `json:"tooltip"`
	Tags        []string `json:"tags"`
	AsDropdown  bool     `json:"asDropdown"`
	TargetBlank bool     `json:"targetBlank"`
	IncludeVars bool     `json:"includeVars"`
	KeepTime    bool     `json:"keepTime"`
}

type variable struct {
	Name       string         `json:"name"`
	Label      string         `json:"label"`
	Type       string         `json:"type"`
	Query      any            `json:"query"`
	Datasource *datasource    `json:"datasource,omitempty"`
	Refresh    int            `json:"refresh"` // 1: when the dashboard is loaded, 2: when its time range changes
	Sort       int            `json:"sort"`    // 1: by name
	Multi      bool           `json:"multi"`
	IncludeAll bool           `json:"includeAll"`
	AllValue   string         `json:"allValue,omitempty"`
	Current    map[string]any `json:"current,omitempty"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type row struct {
	ID        int     `json:"id"`
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Collapsed bool    `json:"collapsed"`
	GridPos   gridPos `json:"gridPos"`
	Panels    []any   `json:"panels"`
}

type panel struct {
	ID          int            `json:"id"`
	Type        string         `json:"type"`
	Title       string         `json:"title"`
	Description string         `json:"description"`
	GridPos     gridPos        `json:"gridPos"`
	Datasource  datasource     `json:"datasource"`
	Targets     []target       `json:"targets"`
	FieldConfig fieldConfig    `json:"fieldConfig"`
	Options     map[string]any `json:"options"`
}

type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	Instant      bool       `json:"instant"`
	Range        bool       `json:"range"`
}

type fieldConfig struct {
	Defaults struct {
		Unit       string         `json:"unit"`
		Decimals   *int           `json:"decimals,omitempty"`
		Min        *int           `json:"min,omitempty"`
		Color      map[string]any `json:"color"`
		Thresholds struct {
			Mode  string `json:"mode"`
			Steps []step `json:"steps"`
		} `json:"thresholds"`
		Custom map[string]any `json:"custom,omitempty"`
	} `json:"defaults"`
	Overrides []any `json:"overrides"`
}

// step is where a threshold's color begins; the first has no value.
type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

var source = datasource{"prometheus", "${datasource}"}

// The selectors of the queries below: {} selects the chosen instances, and {R} their chosen
// resources. A query's own matcher stands in front, as in {reason="evicted",}.
var selectors = strings.NewReplacer(
	"R}", `job=~"$job",instance=~"$instance",resource=~"$resource"}`,
	"}", `job=~"$job",instance=~"$instance"}`,
)

// query is a PromQL expression and the legend of its series.
type query struct{ expr, legend string }

// stat shows one figure and its course. The figure is yellow from the first threshold on, and red
// from the second. If the second threshold is the lower one, the colors are for figures below them.
func stat(title, unit, description, expr string, thresholds ...float64) *panel {
	p := newPanel("stat", title, unit, description, []query{{expr, ""}}, thresholds)
	p.GridPos = gridPos{H: 4, W: 4}
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "thresholds"}
	p.Options = map[string]any{
		"colorMode": "value", "graphMode": "area", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
		"wideLayout": true, "percentChangeColorMode": "standard", "showPercentChange": false,
		"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
	}
	return p
}

// graph shows series over time.
func graph(title, unit, description string, queries ...query) *panel {
	p := newPanel("timeseries", title, unit, description, queries, nil)
	p.GridPos = gridPos{H: 8, W: 8}
	p.FieldConfig.Defaults.Color = map[string]any{"mode": "palette-classic"}
	p.FieldConfig.Defaults.Min = new(int)
	p.FieldConfig.Defaults.Custom = map[string]any{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10,
		"showPoints": "never", "spanNulls": false}
	p.Options = map[string]any{
		"legend": map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true,
			"calcs": []string{}},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
	return p
}

// limits draws thresholds into a graph.
func (p *panel) limits(thresholds ...float64) *panel {
	p.setThresholds(thresholds)
	p.FieldConfig.Defaults.Custom["thresholdsStyle"] = map[string]any{"mode": "dashed"}
	return p
}

func newPanel(kind, title, unit, description string, queries []query, thresholds []float64) *panel {
	p := &panel{Type: kind, Title: title, Description: description, Datasource: source}
	for i, q := range queries {
		p.Targets = append(p.Targets, target{
			RefID:        string(rune('A' + i)),
			Datasource:   source,
			Expr:         selectors.Replace(q.expr),
			LegendFormat: q.legend,
			Range:        true,
		})
	}
	p.FieldConfig.Defaults.Unit = unit
	p.FieldConfig.Overrides = []any{}
	p.setThresholds(thresholds)
	return p
}

func (p *panel) setThresholds(thresholds []float64) {
	colors := []string{"green", "yellow", "red"}
	if len(thresholds) == 2 && thresholds[0] > thresholds[1] {
		colors = []string{"red", "yellow", "green"}
		thresholds = []float64{thresholds[1], thresholds[0]}
	}
	if len(thresholds) == 1 {
		colors = []string{"green", "red"}
	}
	steps := []step{{Color: colors[0]}}
	for i, v := range thresholds {
		steps = append(steps, step{colors[i+1], &v})
	}
	p.FieldConfig.Defaults.Thresholds.Mode = "absolute"
	p.FieldConfig.Defaults.Thresholds.Steps = steps
}

// section is a row and its panels, which are laid out from left to right.
type section struct {
	title  string
	panels []*panel
}

// newDashboard lays out a dashboard with the variables that all dashboards have, and with the
// variable resource if perResource is true.
func newDashboard(name, title, description string, perResource bool, sections ...section) *dashboard {
	d := &dashboard{
		UID: "watchfan-" + name, Title: "watchfan / " + title, Description: description, Tags: []string{"watchfan"},
		SchemaVersion: 42, Editable: true, GraphTooltip: 1, Refresh: "30s", Time: timeRange{"now-1h", "now"},
		Links: []link{{Title: "watchfan", Type: "dashboards", Icon: "external link", Tags: []string{"watchfan"},
			IncludeVars: true, KeepTime: true}},
	}
	d.Templating.List = []variable{
		{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1},
		labelVariable("job", "Job", "label_values(watchfan_watchers, job)"),
		labelVariable("instance", "Instance", `label_values(watchfan_watchers{job=~"$job"}, instance)`),
	}
	if perResource {
		d.Templating.List = append(d.Templating.List,
			labelVariable("resource", "Resource",
				`label_values(watchfan_lane_watchers{job=~"$job",instance=~"$instance"}, resource)`))
	}
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, s := range sections {
		d.Panels = append(d.Panels, &row{ID: next(), Type: "row", Title: s.title, GridPos: gridPos{H: 1, W: 24, Y: y},
			Panels: []any{}})
		y++
		x, height := 0, 0
		for _, p := range s.panels {
			if x+p.GridPos.W > 24 {
				x, y = 0, y+height
			}
			p.ID, p.GridPos.X, p.GridPos.Y = next(), x, y
			x, height = x+p.GridPos.W, p.GridPos.H
			d.Panels = append(d.Panels, p)
		}
		y += height
	}
	return d
}

func labelVariable(name, label, q string) variable {
	return variable{
		Name: name, Label: label, Type: "query", Query: map[string]any{"query": q, "refId": name}, Datasource: &source,
		Refresh: 2, Sort: 1, Multi: true, IncludeAll: true, AllValue: ".+",
		Current: map[string]any{"text": []string{"All"}, "value": []string{"$__all"}},
	}
}

// marshal returns the content of the dashboard's file.
func (d *dashboard) marshal() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(d); err != nil {
		panic(fmt.Sprintf("%s: %v", d.UID, err)) // strings, numbers, and slices and maps of them, cannot fail
	}
	return b.Bytes()
}

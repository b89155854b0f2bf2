package top

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"
)

// refresh is how often the screen is drawn: the countdown has tenths of a second.
const refresh = 200 * time.Millisecond

// Screen shows a board in a terminal until the user quits or ctx ends.
func Screen(ctx context.Context, b *Board, title string, colour bool) error {
	_, err := tea.NewProgram(screen{board: b, view: View{Title: title, IsAll: true}, style: Style{Width: 80, Height: 24, Colour: colour}},
		tea.WithContext(ctx), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// screen is the model of Bubble Tea.
type screen struct {
	board *Board
	view  View
	style Style
}

type redraw time.Time

func tick() tea.Cmd { return tea.Tick(refresh, func(t time.Time) tea.Msg { return redraw(t) }) }

// Init starts the clock.
func (s screen) Init() tea.Cmd { return func() tea.Msg { return redraw(time.Now()) } }

// Update handles keys, the size of the terminal and the clock.
func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case tea.WindowSizeMsg:
		s.style.Width, s.style.Height = m.Width, m.Height
	case redraw:
		s.view.Pods, s.view.IsAll, s.view.Problem = s.board.Snapshot()
		s.view.Now = time.Time(m)
		if s.view.Selected == "" || s.view.index() == 0 {
			s.view.choose(0)
		}
		return s, tick()
	case tea.KeyPressMsg:
		switch m.String() {
		case "q", "esc", "ctrl+c":
			return s, tea.Quit
		case "up", "k":
			s.view.choose(s.view.index() - 1)
		case "down", "j":
			s.view.choose(s.view.index() + 1)
		}
	}
	return s, nil
}

// choose selects a pod by its number.
func (v *View) choose(i int) {
	if len(v.Pods) == 0 {
		v.Selected = ""
		return
	}
	p := v.Pods[min(max(i, 0), len(v.Pods)-1)]
	v.Selected = p.Namespace + "/" + p.Name
}

// View is the text on the screen.
func (s screen) View() tea.View {
	v := tea.NewView(s.view.Text(s.style) + s.style.paint(faint, "\nup, down: choose a pod   q: quit"))
	v.AltScreen = true
	return v
}

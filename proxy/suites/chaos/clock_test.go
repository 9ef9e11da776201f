package chaos_test

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// jumpClock makes one process see another time of day: by offset from the real one, whatever it saw
// before. Other processes see the real time, and the process's own monotonic clock goes on.
//
// A Go program asks the vDSO for the time: code that the kernel maps into each process. In the
// stopped process, the first instructions of this code are replaced by instructions that make the
// system call and add the offset.
func jumpClock(pid int, offset time.Duration) error {
	if platform := runtime.GOOS + "/" + runtime.GOARCH; platform != "linux/amd64" {
		return errors.New("not possible on " + platform)
	}
	symbol, err := findClock(pid)
	if err != nil {
		return err
	}
	if !await(patience, func() (over bool) {
		if err = syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return true
		}
		if err = waitState(pid, 'T'); err == nil && !executing(pid, symbol) {
			err, over = poke(pid, symbol.address, clockCode(offset)), true
		}
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
		return over || err != nil
	}) {
		return errors.New("a thread is always within clock_gettime")
	}
	return err
}

// clockCode is clock_gettime(edi, rsi) with offset added to the seconds of CLOCK_REALTIME, which is
// clock 0.
func clockCode(offset time.Duration) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 13, // jnz to ret
		0x48, 0xba, // mov rdx, offset
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(int64(offset/time.Second)))
	return append(code,
		0x48, 0x01, 0x16, // add [rsi], rdx
		0xc3, // ret
	)
}

type clockSymbol struct{ address, size uint64 }

// findClock finds clock_gettime in a process' vDSO.
func findClock(pid int) (clockSymbol, error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return clockSymbol{}, err
	}
	var begin, end int64
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			_, _ = fmt.Sscanf(line, "%x-%x", &begin, &end) // otherwise there is no file
		}
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return clockSymbol{}, err
	}
	defer memory.Close()
	file, err := elf.NewFile(io.NewSectionReader(memory, begin, end-begin))
	if err != nil {
		return clockSymbol{}, err
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return clockSymbol{}, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return clockSymbol{uint64(begin) + s.Value, s.Size}, nil
		}
	}
	return clockSymbol{}, errors.New("the process has no vDSO with __vdso_clock_gettime")
}

// executing reports whether a thread of a stopped process is within the function, or may be.
func executing(pid int, s clockSymbol) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(threads) == 0 {
		return true
	}
	for _, thread := range threads {
		content, err := os.ReadFile(thread)
		if err != nil {
			continue // the thread has ended
		}
		fields := strings.Fields(string(content)) // the last is the program counter
		pc, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		if err != nil || pc >= s.address && pc < s.address+max(s.size, 64) {
			return true
		}
	}
	return false
}

func poke(pid int, address uint64, code []byte) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = memory.WriteAt(code, int64(address))
	return errors.Join(err, memory.Close())
}
